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
    """One model: a folder saved by the library, or a hub repository with the model's name."""


class SentenceTransformersConfig(LibraryConfig):
    """Settings of sentence-transformers: the models and their threads.

    Models of a hub are fetched at their first use into `models/sentence-transformers` in the data
    folder.

    Attributes:
        models: At least one, with different names.
    """

    models: Annotated[list[SentenceTransformersModel], AfterValidator(each_once)] = Field(
        min_length=1
    )
