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
    """One model: where its files are (`OnnxSource`), and what they do not say themselves.

    A model of a package brings its own dimension, pooling and prefix.

    Attributes:
        dimension: Numbers in an embedding. Default: `hidden_size` of `config.json`; a hub's model
            needs it.
        pooling: How states of tokens become one embedding. Default: as `1_Pooling/config.json`
            says; a file that gives sentence embeddings needs none.
        query_prefix, passage_prefix: What precedes a question and a document. Default: as
            `config_sentence_transformers.json` says, or nothing.
        unrelated_cosine: What texts that have nothing to do with each other have; confidence counts
            from it. Default 0.
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
