"""Settings of inline::sentence-transformers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.providers.embedding._local.library_config import (
    LibraryConfig,
    LibraryModel,
    SavedFiles,
)
from corral.providers.models.names import each_once


class SentenceTransformersModel(LibraryModel, SavedFiles):
    """One model: a folder that the library saved, or what a hub has under the model's name."""


class SentenceTransformersConfig(LibraryConfig):
    """Settings of sentence-transformers: the models and their threads.

    What a hub has is fetched at its first use into `models/sentence-transformers` of the data
    folder.
    """

    models: Annotated[list[SentenceTransformersModel], AfterValidator(each_once)] = Field(
        min_length=1
    )
