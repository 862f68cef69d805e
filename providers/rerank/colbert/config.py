"""Settings of inline::colbert."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.names import each_once
from corral.providers.models.onnx import OnnxSource


class ColbertModel(OnnxSource):
    """A model: its files (`OnnxSource`), and the tokens that mark questions and texts.

    Attributes:
        query_mark, document_mark: The token after the first special token of a question or a text;
            default `[unused0]` and `[unused1]`.
        query_tokens: Length to which questions are padded with mask tokens, 0 to 512; default 32.
    """

    query_mark: str = Field(default="[unused0]", max_length=255)
    document_mark: str = Field(default="[unused1]", max_length=255)
    query_tokens: int = Field(default=32, ge=0, le=512)


class ColbertConfig(ProviderConfig):
    """The models, the threads and the cache.

    Attributes:
        models: At least one.
        threads: Threads per computation, 1 to 64. Default: one per processor, at most 4.
        batch_size: Texts per computation, 1 to 1000; default 8.
        cache_mib: Approximate maximum size of the file of cached token embeddings, default 2048;
            the oldest are deleted. A text of 200 tokens takes about 80 KB with a model of 384
            dimensions. 0 for no cache.
    """

    models: Annotated[list[ColbertModel], AfterValidator(each_once)] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
    batch_size: int = Field(default=8, ge=1, le=1000)
    cache_mib: int = Field(default=2048, ge=0, le=1_048_576)
