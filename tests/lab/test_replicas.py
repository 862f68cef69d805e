"""A short round of `lab.replicas`: replicas die and freeze, and no acknowledged write is lost."""

from __future__ import annotations

from pathlib import Path

from lab.replicas import installation, run_round

from ..object_storage import ObjectStorage
from ..providers.vector_io.pgvector.conftest import postgresql

REPLICAS = 2


async def test_two_replicas_lose_nothing(tmp_path: Path) -> None:
    """Everything acknowledged is there, whole and once, and a refusal says when to repeat.

    If this fails: run `python -m lab.replicas`, whose output names the document or the request.
    """
    with (
        postgresql() as database,
        ObjectStorage() as storage,
        installation(tmp_path, database, storage, REPLICAS) as replicas,
    ):
        outcome, faults = await run_round(replicas, database, storage, seed=1, seconds=8)
    assert outcome.defects == []
    assert sorted(faults) == ["freeze", "kill", "restart of PostgreSQL", "silence of S3"]
    assert outcome.calls["POST tool-runtime"] > 0
