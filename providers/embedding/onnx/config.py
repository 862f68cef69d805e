"""Settings of inline::onnx."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from corral.api.provider import ProviderConfig
from corral.providers.models.names import each_once
from corral.providers.models.onnx import OnnxSource

Pooling = Literal["mean", "cls", "last"]


class OnnxModel(OnnxSource):
    """One model: the source of its files (`OnnxSource`), and properties that they do not contain.

    A model from a package has a known dimension, pooling and prefix.

    Attributes:
        dimension: Numbers in an embedding. Default: `hidden_size` of `config.json`; a hub's model
            needs it.
        pooling: How the tokens' states become one embedding. Default: from `1_Pooling/config.json`;
            not needed for a graph that outputs sentence embeddings.
        query_prefix, passage_prefix: Prefixes of a question and of a document. Default: from
            `config_sentence_transformers.json`, or none.
        unrelated_cosine: Cosine of unrelated texts, the zero point of confidence. Default 0.
    """

    dimension: int | None = Field(default=None, ge=1, le=16_000)
    pooling: Pooling | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    unrelated_cosine: float = Field(default=0.0, ge=-0.99, le=0.99)

    @model_validator(mode="after")
    def _known_dimension(self) -> OnnxModel:
        if self.repository is not None and self.dimension is None:
            raise ValueError("repository needs dimension")
        if self.packaged:
            for name, value in self.packaged.traits.items():
                if name not in self.model_fields_set:
                    setattr(self, name, value)
        return self


class OnnxConfig(ProviderConfig):
    """Settings of ONNX models: the models and their threads.

    Attributes:
        models: At least one.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
    """

    models: Annotated[list[OnnxModel], AfterValidator(each_once)] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
