"""Settings of inline::llama-cpp."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.hub import Digest
from corral.providers.models.names import ModelName, each_once


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("path must be absolute")
    return path


class LlamaModel(ProviderConfig):
    """One model and the sizes of its answers.

    Attributes:
        model: The name that requests use.
        path: Absolute path of the GGUF file.
        sha256: The accepted digest of the file, 64 hexadecimal digits. Default: any.
        context_tokens: Tokens of a prompt and its answer together; default 4096. A model trained
            with a smaller context keeps its own limit. Memory grows with this setting.
        max_output_tokens: Maximum length of an answer if the request sets none; default 1024.
        concurrency: Concurrent answers, 1 to 16; default 1. Each has its own context; further
            requests wait.
    """

    model_config = ConfigDict(protected_namespaces=())

    model: ModelName
    path: Annotated[Path, AfterValidator(_absolute)]
    sha256: Digest | None = None
    context_tokens: int = Field(default=4096, ge=256, le=1_048_576)
    max_output_tokens: int = Field(default=1024, ge=1, le=100_000)
    concurrency: int = Field(default=1, ge=1, le=16)


class LlamaCppConfig(ProviderConfig):
    """The models and the number of threads.

    Attributes:
        models: At least one.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
    """

    models: Annotated[list[LlamaModel], AfterValidator(each_once)] = Field(min_length=1)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
