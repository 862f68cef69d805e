"""A conformance class for each broken index; run by test_broken_indexes.py, not collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broken_indexes import CAUGHT_BY
from broken_searching import HalfBlind, KeywordAnd
from toy_engine import CAPABILITIES, ToyEngine

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB


def suite(engine: type[ToyEngine], **attributes: object) -> type[IndexConformance]:
    """Return a conformance class for an engine."""

    async def open_index(self: object, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        return engine.index_class(engine(vector_db, folder))

    members = {"__module__": __name__, "capabilities": CAPABILITIES, "open_index": open_index}
    return type(f"Test{engine.__name__}", (IndexConformance,), members | attributes)


globals().update({f"Test{index.__name__}": suite(index) for index in CAUGHT_BY})

APPROXIMATE = {"capabilities": replace(CAPABILITIES, exact=False)}
TestApproximate = suite(ToyEngine, **APPROXIMATE)
TestHalfBlind = suite(HalfBlind, **APPROXIMATE)
TestTwin = suite(ToyEngine, same_as=(TestApproximate, ("keyword",)))
TestKnownGap = suite(KeywordAnd, xfails={"test_words_are_joined_by_or": "joins by AND"})
TestClosedGap = suite(ToyEngine, xfails={"test_words_are_joined_by_or": "joined by AND once"})
