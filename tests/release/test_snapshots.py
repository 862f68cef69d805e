"""Semantic Versioning: nothing that users build on is removed or changed by accident."""

from __future__ import annotations

import pytest

from .snapshots import REQUIRED, SURFACES, breaking, recorded


@pytest.mark.parametrize("surface", SURFACES)
def test_a_release_keeps_what_the_last_one_promised(surface: str) -> None:
    """Names, signatures, routes, fields and settings of the snapshot are there, unchanged.

    Additions pass. If this fails and the change is meant, docs/releasing.md says what it costs:
    describe it in CHANGELOG.md, then run `make snapshots` and commit the difference.
    """
    broken = breaking(recorded(surface), set(SURFACES[surface]()))
    assert not broken, "\n".join(broken)


def test_the_snapshots_hold_what_they_promise() -> None:
    """Each snapshot is complete: a name of each kind is in it, and the lines are sorted."""
    for surface, lines in {
        "python": [
            "corral.api.scoring: def vector_score(",
            "corral.api.engine.Engine: @abstractmethod async def ",
            "corral.api.hits.Hit: score: ",
        ],
        "http": [
            "POST /v1/vector-io/query body application/json: ",
            "GET /v1/jobs?limit: ",
            "RAGQueryConfig.max_chunks: ",
        ],
        "run-yaml": ["`server` server.port: integer", "`remote::pgvector` (vector_io) dsn: string"],
    }.items():
        snapshot = recorded(surface)
        for begin in lines:
            assert any(line.startswith(begin) for line in snapshot), begin
    assert any(line.endswith(REQUIRED) for line in recorded("http"))


def test_removals_changes_and_new_demands_are_breaking() -> None:
    """An addition passes; a removal, another type and a new required field of a type do not."""
    before = {"A.x: string", "A.y: integer"}
    assert breaking(before, {*before, "A.z: string", f"B.x: string{REQUIRED}"}) == []
    assert breaking(before, {"A.x: string"}) == ["- A.y: integer"]
    assert breaking(before, {"A.x: string", "A.y: number"}) == ["- A.y: integer"]
    assert breaking(before, {*before, f"A.z: string{REQUIRED}"}) == [f"+ A.z: string{REQUIRED}"]
    route = {"GET /v1/a"}
    assert breaking(route, {*route, "GET /v1/a?b: string", f"GET /v1/c?d: string{REQUIRED}"}) == []
    demanded = f"GET /v1/a?b: string{REQUIRED}"
    assert breaking(route, {*route, demanded}) == [f"+ {demanded}"]
