"""Orphans are deleted by one process at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corral.api.errors import Conflict
from corral.api.provider import Orphan
from corral.providers.stack.orphans import remove_orphans
from corral.providers.stack.stack import Stack

from .rebuild_stack import opened

NAMES = [("sqlite", "left")]


async def test_one_process_at_a_time_deletes_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one process deletes, another one's request is a 409; afterwards it works.

    If this fails: two replicas delete the same data, and one of them reports an error of an engine.
    """
    begun, may_end, dropped = asyncio.Event(), asyncio.Event(), 0

    async def drop() -> None:
        nonlocal dropped
        dropped += 1
        begun.set()
        await may_end.wait()

    async def orphans(stack: Stack, _: str) -> list[Orphan]:
        return [Orphan("left", drop, "db", await stack.installation())]

    monkeypatch.setattr(Stack, "orphans", orphans)
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        deleting = asyncio.create_task(remove_orphans(one, NAMES))
        await begun.wait()
        with pytest.raises(Conflict, match="Another process deletes orphans"):
            await remove_orphans(other, NAMES)
        assert dropped == 1
        may_end.set()
        await deleting
        await remove_orphans(other, NAMES)
    assert dropped == 2
