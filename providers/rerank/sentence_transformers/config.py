"""Settings of inline::sentence-transformers-rerank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corral.providers.embedding._local.library_config import LibraryConfig, SavedFiles
from corral.providers.models.names import each_once


class SavedCrossEncoder(SavedFiles):
    """One model: a folder that the library saved, or what a hub has under the model's name.

    Attributes:
        score: What the model gives. `sigmoid`: a logit, mapped by 1 / (1 + exp(-s)), as nearly all
            cross-encoders do. `as_is`: a number in [0, 1].
    """

    score: Literal["sigmoid", "as_is"] = "sigmoid"


class CrossEncoderConfig(LibraryConfig):
    """Which models, and how many threads may compute.

    Attributes:
        batch_size: Texts of one computation, 1 to 1000; default 16.
    """

    models: Annotated[list[SavedCrossEncoder], AfterValidator(each_once)] = Field(min_length=1)
    batch_size: int = Field(default=16, ge=1, le=1000)
