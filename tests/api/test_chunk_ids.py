"""The public road to the ids: what is checked on the way in and on the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from corral.api.checks import MAX_IDS
from corral.api.engine_index import EngineIndex
from corral.api.errors import ContractViolation, InvalidRequest

from .scripted_engine import ScriptedEngine, candidates


async def listed(index: EngineIndex, *arguments: Any) -> list[str]:
    """Return what chunk_ids answers."""
    return await index.chunk_ids(*arguments)


class Answering(ScriptedEngine):
    """Its hook returns the same ids to every call."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self.ids = ids

    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return self.ids


async def test_the_hook_gets_where_to_begin_and_how_many() -> None:
    """Defaults: from the beginning, 1,000."""
    engine = ScriptedEngine(candidates(b=1, a=1, c=1))
    index = EngineIndex(engine)
    assert await listed(index) == ["a", "b", "c"]
    assert await listed(index, "a", 1) == ["b"]
    assert engine.asked("chunk_ids") == [("", 1000), ("a", 1)]


async def test_a_cursor_ends_before_nul() -> None:
    """No id holds NUL, so what follows "a" and NUL is what follows "a"; engines need not see it."""
    engine = ScriptedEngine(candidates(a=1, aa=1))
    index = EngineIndex(engine)
    assert await listed(index, "a\0zz") == ["aa"]
    assert engine.asked("chunk_ids") == [("a", 1000)]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "5", None, MAX_IDS + 1])
async def test_a_wrong_limit_is_refused(limit: Any) -> None:
    """1 to 100,000, an integer."""
    with pytest.raises(InvalidRequest, match=r"limit must be an integer .*100000 \(got ") as raised:
        await listed(EngineIndex(ScriptedEngine()), "", limit)
    assert raised.value.field == "limit"


@pytest.mark.parametrize("after", [None, 1, b"a", "\ud800"])
async def test_a_wrong_cursor_is_refused(after: Any) -> None:
    """Valid text only: half a character cannot be compared in UTF-8."""
    with pytest.raises(InvalidRequest, match="must be valid text") as raised:
        await listed(EngineIndex(ScriptedEngine()), after)
    assert raised.value.field == "after"


@pytest.mark.parametrize(
    "ids", [("b", "a"), ("a", "a"), ("0", "a"), ("5",), tuple("abcd")], ids=" ".join
)
async def test_a_wrong_answer_is_a_violation(ids: tuple[str, ...]) -> None:
    """Out of order, twice, not above the cursor, or more than asked for: never passed on."""
    with pytest.raises(ContractViolation, match="chunk ids"):
        await listed(EngineIndex(Answering(*ids)), "5", 3)
