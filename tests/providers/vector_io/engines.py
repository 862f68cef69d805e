"""Data folders for providers under test, and the engine of an index, for faults at its driver."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.providers.vector_io.kit.write_ahead import WriteAheadEngine


def scratch_home() -> Path:
    """Return a new data folder, which is removed when this process exits."""
    folder = tempfile.mkdtemp(prefix="corral-home-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def engine_of(index: EmbeddingIndex) -> Any:
    """Return the engine of an index, without the write-ahead log around it."""
    assert isinstance(index, EngineIndex)
    engine = index.engine
    return engine.engine if isinstance(engine, WriteAheadEngine) else engine
