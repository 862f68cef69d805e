"""Settings of inline::colbert."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.names import each_once
from corral.providers.models.onnx import OnnxSource


class ColbertModel(OnnxSource):
    """A model: its files (`OnnxSource`), and the tokens that tell questions from texts.

    Attributes:
        query_mark, document_mark: Tokens behind the first one of a question, and of a text.
        query_tokens: Questions are filled up to this many tokens with masks, 0 to 512.
    """

    query_mark: str = Field(default="[unused0]", max_length=255)
    document_mark: str = Field(default="[unused1]", max_length=255)
    query_tokens: int = Field(default=32, ge=0, le=512)


class ColbertConfig(ProviderConfig):
    """The models, the threads and the cache.

    Attributes:
        models: At least one.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
        batch_size: Texts of one computation, 1 to 1000; default 8.
        cache_mib: Approximate size of the file of cached token embeddings; the oldest are deleted.
            A text of 200 tokens has about 80 KB in a model of 384 dimensions. 0: no cache.
    """

    models: Annotated[list[ColbertModel], AfterValidator(each_once)] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
    batch_size: int = Field(default=8, ge=1, le=1000)
    cache_mib: int = Field(default=2048, ge=0, le=1_048_576)
