"""Settings of inline::onnx-rerank."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.names import each_once
from corral.providers.models.onnx import OnnxSource


class CrossEncoder(OnnxSource):
    """A model: its files (`OnnxSource`), and the range of its scores.

    Attributes:
        score: The range of the graph's output. `sigmoid` (default): a logit, as from nearly all
            cross-encoders, mapped by 1 / (1 + exp(-s)). `as_is`: a number in [0, 1].
    """

    score: Literal["sigmoid", "as_is"] = "sigmoid"


class OnnxRerankConfig(ProviderConfig):
    """The models, and the number of threads.

    Attributes:
        models: At least one.
        threads: Threads per computation, 1 to 64. Default: one per processor, at most 4.
        batch_size: Texts per computation, 1 to 1000; default 16.
    """

    models: Annotated[list[CrossEncoder], AfterValidator(each_once)] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
    batch_size: int = Field(default=16, ge=1, le=1000)
