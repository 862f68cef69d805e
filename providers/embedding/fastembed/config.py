"""Settings of inline::fastembed."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.providers.embedding._local.library_config import LibraryConfig, LibraryModel
from corral.providers.models.names import each_once


class FastEmbedConfig(LibraryConfig):
    """Settings of fastembed: the models and their threads.

    A model without a `path` is fetched at its first use into `models/fastembed` in the data folder.

    Attributes:
        models: At least one, with different names.
    """

    models: Annotated[list[LibraryModel], AfterValidator(each_once)] = Field(min_length=1)
