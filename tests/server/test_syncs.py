"""Syncs over HTTP and by schedule: who may start which, and what the answers say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.api.principal import UNRESTRICTED
from corral.providers.base.config import RunConfig
from corral.providers.stack.background import SyncSchedule
from corral.server.app import create_app

from ..providers.ingestion.jobs_stack import opened, run_config


@pytest.fixture
def syncs(tmp_path: Path) -> list[dict[str, Any]]:
    """Make a folder with a document, and the syncs of run.yaml that read it."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "lion.md").write_text("# Lion\n\nIt sleeps.")
    source = {"type": "folder", "path": str(folder)}
    return [
        {"name": "notes", "vector_db_id": "db", "source": source},
        {"name": "theirs", "vector_db_id": "db", "source": source, "tenant": "acme"},
    ]


async def serve(config: RunConfig, home: Path) -> Any:
    """Return the client of an app in this process, and what closes it."""
    app = create_app(config, home, operator=UNRESTRICTED)
    return app, httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8321"
    )


async def test_a_run_over_http(syncs: list[dict[str, Any]], tmp_path: Path) -> None:
    """A run is started and followed; a source of another tenant or of no sync does not exist.

    If this fails: a request can name a place of the server, or see another tenant's source.
    """
    app, client = await serve(run_config(sync=syncs), tmp_path / "home")
    async with app.router.lifespan_context(app), client:
        body = {"vector_db_id": "db", "embedding_model": "hashing"}
        assert (await client.post("/v1/vector-dbs", json=body)).is_success
        path = "/v1/vector-dbs/db/sync"
        assert (await client.post(f"{path}/state", json={"source": "notes"})).status_code == 400
        for name in ("theirs", str(tmp_path / "notes"), "file:///etc"):
            refused = await client.post(path, json={"source": name})
            assert refused.status_code == 400, refused.text
            assert "Known: notes." in refused.text
        assert (await client.post(path, json={"source": "notes", "x": 1})).status_code == 400
        state = (await client.post(path, json={"source": "notes"})).json()
        while state["status"] == "running":
            await asyncio.sleep(0.05)
            state = (await client.post(f"{path}/state", json={"source": "notes"})).json()
        assert state["status"] == "completed", state
        assert (state["listed"], state["stored"], state["failed"]) == (1, 1, 0)
        documents = (await client.get("/v1/vector-dbs/db/documents")).json()["data"]
        assert [each["document_id"] for each in documents] == ["lion.md"]
        unknown = await client.post("/v1/vector-dbs/none/sync", json={"source": "notes"})
        assert unknown.status_code == 400


async def test_the_schedule_runs_what_has_a_pause(
    syncs: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A sync with `every_minutes` runs at the start, and one that fails harms no other.

    If this fails: a failure of one sync ends the schedule of the others.
    """
    lost = {**syncs[0], "name": "lost", "vector_db_id": "nowhere", "every_minutes": 5}
    timed = [lost, {**syncs[0], "every_minutes": 5}, {**syncs[0], "name": "on request"}]
    async with opened(tmp_path / "home", sync=timed) as stack:
        schedule = SyncSchedule(stack)
        schedule.start()
        entry = stack.syncs.entry("", "db", "notes")
        async with asyncio.timeout(60):
            while stack.syncs.state(entry) is None:  # noqa: ASYNC110 - no event tells that a scheduled run began
                await asyncio.sleep(0.05)
            await stack.syncs.wait(entry)
        state = stack.syncs.state(entry)
        assert state
        assert state.report.stored == 1
        assert stack.syncs.state(stack.syncs.entry("", "db", "on request")) is None
        failed = stack.syncs.state(stack.syncs.entry("", "nowhere", "lost"))
        assert failed
        assert failed.status == "failed"
        await schedule.close()
