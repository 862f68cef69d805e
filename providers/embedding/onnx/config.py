"""Settings of inline::onnx."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from corral.api.chunks import Strict
from corral.api.provider import ProviderConfig
from corral.providers.embedding._local.hub import HUB

Pooling = Literal["mean", "cls", "last"]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class OnnxModel(Strict):
    """One model.

    Attributes:
        model: Its name, as a vector DB registers it.
        path: Folder with `tokenizer.json`, the ONNX file and the model's own configuration.
        repository: Or where a hub has them, as `owner/name`; needs `revision` and `dimension`.
        revision: The commit, 40 hexadecimal digits.
        hub: Address of the hub or of a mirror.
        file: The ONNX file in the folder. Default: `onnx/model.onnx`, or `model.onnx` if that is
            not there.
        sha256: By file name, the only digest that is accepted.
        dimension: Numbers in an embedding. Default: `hidden_size` of `config.json`.
        pooling: How states of tokens become one embedding. Default: as `1_Pooling/config.json`
            says; a file that gives sentence embeddings needs none.
        max_tokens: Tokens of a text that are read. Default: of `sentence_bert_config.json`, else of
            `config.json`.
        query_prefix, passage_prefix: What goes before a question and a document. Default: as
            `config_sentence_transformers.json` says, or nothing.
        unrelated_cosine: What texts that have nothing to do with each other have; confidence counts
            from it. Default 0.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1, max_length=255)
    path: Path | None = None
    repository: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*/[\w-][\w.-]*$")] | None = (
        None
    )
    revision: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")] | None = None
    hub: str = HUB
    file: str | None = None
    sha256: dict[str, Digest] = Field(default_factory=dict)
    dimension: int | None = Field(default=None, ge=1, le=16_000)
    pooling: Pooling | None = None
    max_tokens: int | None = Field(default=None, ge=2, le=100_000)
    query_prefix: str | None = None
    passage_prefix: str | None = None
    unrelated_cosine: float = Field(default=0.0, ge=-0.99, le=0.99)

    @model_validator(mode="after")
    def _from_one_place(self) -> OnnxModel:
        if (self.path is None) == (self.repository is None):
            raise ValueError("give either path or repository")
        if self.repository is not None and (self.revision is None or self.dimension is None):
            raise ValueError("repository needs revision (a commit) and dimension")
        if self.path is not None and not self.path.is_absolute():
            raise ValueError("path must be absolute")
        return self


class OnnxConfig(ProviderConfig):
    """Which models, and how many threads may compute.

    Attributes:
        models: At least one.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
    """

    models: list[OnnxModel] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)

    @model_validator(mode="after")
    def _unique(self) -> OnnxConfig:
        names = [each.model for each in self.models]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"models: {twice[0]!r} appears twice")
        return self
