"""The engine of an index, for tests of faults at an engine's driver."""

from __future__ import annotations

from typing import Any

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.providers.vector_io.kit.write_ahead import WriteAheadEngine


def engine_of(index: EmbeddingIndex) -> Any:
    """Return the engine of an index, without the write-ahead log around it."""
    assert isinstance(index, EngineIndex)
    engine = index.engine
    return engine.engine if isinstance(engine, WriteAheadEngine) else engine
