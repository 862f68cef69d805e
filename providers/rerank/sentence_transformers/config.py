"""Settings of inline::sentence-transformers-rerank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corral.providers.embedding._local.library_config import LibraryConfig, SavedFiles
from corral.providers.models.names import each_once


class SavedCrossEncoder(SavedFiles):
    """A model: a folder saved by the library, or a repository on a hub.

    Attributes:
        score: The range of the model's output. `sigmoid` (default): a logit, as from nearly all
            cross-encoders, mapped by 1 / (1 + exp(-s)). `as_is`: a number in [0, 1].
    """

    score: Literal["sigmoid", "as_is"] = "sigmoid"


class CrossEncoderConfig(LibraryConfig):
    """The models, and the number of threads.

    Attributes:
        models: At least one, with different names.
        batch_size: Texts per computation, 1 to 1000; default 16.
    """

    models: Annotated[list[SavedCrossEncoder], AfterValidator(each_once)] = Field(min_length=1)
    batch_size: int = Field(default=16, ge=1, le=1000)
