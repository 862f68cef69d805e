"""Settings of inline::fastembed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from corral.api.chunks import Strict
from corral.api.provider import ProviderConfig
from corral.providers.model_names import each_once
from corral.providers.onnx_models import Digest


class FastEmbedModel(Strict):
    """One model that fastembed lists.

    Attributes:
        model: Its name in fastembed's list.
        dimension: Numbers in an embedding.
        path: Absolute folder with its files. Default: fastembed fetches them at the first use into
            `models/fastembed` of the data folder.
        sha256: By file name in `path`, the only digest that is accepted.
        unrelated_cosine: What texts that have nothing to do with each other have; confidence counts
            from it. Default 0.
    """

    model: str = Field(min_length=1, max_length=255)
    dimension: int = Field(ge=1, le=16_000)
    path: Path | None = None
    sha256: dict[str, Digest] = Field(default_factory=dict)
    unrelated_cosine: float = Field(default=0.0, ge=-0.99, le=0.99)

    @model_validator(mode="after")
    def _of_a_folder(self) -> FastEmbedModel:
        if self.path is not None and not self.path.is_absolute():
            raise ValueError("path must be absolute")
        if self.sha256 and self.path is None:
            raise ValueError("sha256 needs path")
        return self


class FastEmbedConfig(ProviderConfig):
    """Which models, and how many threads may compute.

    Attributes:
        models: At least one.
        offline: Fetch nothing: a model that is not there is an error at once. Default false.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
    """

    models: Annotated[list[FastEmbedModel], AfterValidator(each_once)] = Field(min_length=1)
    offline: bool = False
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
