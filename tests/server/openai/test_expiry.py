"""What expires goes, in the background and in time, and nothing else does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack.background import Sweep
from corral.providers.stack.expiry import store_expiring
from corral.providers.stack.stack import Stack

from ..harness import DIMENSION, Json, id_path, run_config
from .doubles import DAY, Clock, ClockedApp

EXPIRY = {"anchor": "last_active_at", "days": 2}


def insert(app: ClockedApp, content: str, db: str, ttl: int | None = None) -> None:
    """Insert one chunk that lives for `ttl` seconds."""
    body: Json = {"vector_db_id": db, "chunks": [{"content": content}], "ttl_seconds": ttl}
    app.ok("POST", "/v1/vector-io/insert", body)


def test_an_unused_store_expires(app: ClockedApp, clock: Clock) -> None:
    """After its days without activity a store is expired at once, and the sweep deletes its chunks.

    If this fails: `expires_after` is a promise that nobody keeps.
    """
    store = app.create_store(name="notes", expires_after=EXPIRY, metadata={"a": "b"})
    path = f"/v1/vector_stores/{store['id']}"
    insert(app, "the fox", store["id"])
    clock.forward(2 * DAY)
    assert app.ok("GET", path)["status"] == "expired"
    for method, below, body in (
        ("POST", "/search", {"query": "fox"}),
        ("POST", "", {"name": "again"}),
    ):
        error = app.refused(400, method, path + below, body)
        assert (error["code"], error["param"]) == ("expired", "vector_store_id")

    app.sweep()
    left = app.ok("GET", path)
    assert (left["status"], left["name"], left["metadata"]) == ("expired", "notes", {"a": "b"})
    assert left["provider_id"] is None
    assert [each["id"] for each in app.ok("GET", "/v1/vector_stores")["data"]] == [store["id"]]
    assert app.send("GET", id_path(store["id"])).status_code == 400  # the vector DB is gone
    assert app.ok("DELETE", path)["deleted"] is True
    assert app.send("GET", path).status_code == 404


def doors(store: str) -> dict[str, tuple[str, Json]]:
    """Return what uses a store through each API: a path and a body."""
    chunk, vector = {"content": "fox"}, [1.0] * DIMENSION
    document = {"document_id": "d", "content": "fox"}
    call = {"name": "search", "arguments": {"query": "fox", "vector_db_ids": [store]}}
    rag = "/v1/tool-runtime/rag-tool"
    return {
        "query": ("/v1/vector-io/query", {"vector_db_id": store, "query": "fox"}),
        "insert": ("/v1/vector-io/insert", {"vector_db_id": store, "chunks": [chunk]}),
        "rag query": (f"{rag}/query", {"vector_db_ids": [store], "content": "fox"}),
        "rag insert": (f"{rag}/insert", {"vector_db_id": store, "documents": [document]}),
        "jobs": ("/v1/jobs", {"vector_db_id": store, "documents": [document]}),
        "qdrant": (f"/qdrant/collections/{store}/points/query", {"query": vector, "limit": 1}),
        "mcp": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
    }


@pytest.mark.parametrize("door", doors(""))
def test_an_expired_store_is_closed_at_every_door(app: ClockedApp, clock: Clock, door: str) -> None:
    """From its time on no API uses it, before the sweep has come; what is refused is no activity.

    If this fails: chunks that should be gone are in an agent's context.
    """
    store = app.create_store(expires_after=EXPIRY)["id"]
    insert(app, "the fox", store)
    path, body = doors(store)[door]
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    clock.forward(2 * DAY - 1)
    assert "has expired" not in app.send("POST", path, body, headers=headers).text
    clock.forward(2 * DAY)
    for _ in range(2):
        refused = app.send("POST", path, body, headers=headers)
        assert "has expired" in refused.text
        assert "the fox" not in refused.text
        assert refused.status_code == (200 if door == "mcp" else 400)
    assert app.ok("GET", f"/v1/vector_stores/{store}")["status"] == "expired"
    app.sweep()
    assert app.send("GET", id_path(store)).status_code == 400


@pytest.mark.parametrize("use", ["search", "query", "insert", "update"])
def test_activity_keeps_a_store(app: ClockedApp, clock: Clock, use: str) -> None:
    """Each use starts the days anew, through whichever API it comes.

    If this fails: a store that is asked every day through Llama Stack's API is deleted.
    """
    store = app.create_store(expires_after=EXPIRY)["id"]
    uses: dict[str, Any] = {
        "search": lambda: app.search(store, "fox"),
        "query": lambda: app.query("fox", db=store),
        "insert": lambda: insert(app, "fox", store),
        "update": lambda: app.ok("POST", f"/v1/vector_stores/{store}", {"name": "x"}),
    }
    for _ in range(3):
        clock.forward(1.5 * DAY)
        uses[use]()
        app.sweep()
    shown = app.ok("GET", f"/v1/vector_stores/{store}")
    assert (shown["status"], shown["last_active_at"]) == ("completed", clock.now)


def test_looking_at_a_store_is_no_activity(app: ClockedApp, clock: Clock) -> None:
    """Lists and the sweep itself keep no store alive."""
    store = app.create_store(expires_after=EXPIRY)["id"]
    insert(app, "fox", store, ttl=DAY)
    clock.forward(1.5 * DAY)
    app.ok("GET", "/v1/vector_stores")
    app.ok("GET", "/v1/vector-dbs")
    app.ok("GET", f"{id_path(store)}?counts=true")
    app.sweep()
    clock.forward(0.5 * DAY)
    assert app.ok("GET", f"/v1/vector_stores/{store}")["status"] == "expired"


def test_chunks_expire_one_by_one(app: ClockedApp, clock: Clock) -> None:
    """A chunk with `ttl_seconds` goes in its time; its neighbors stay."""
    app.register("db")
    insert(app, "fox one", "db", ttl=10)
    insert(app, "fox two", "db", ttl=1000)
    insert(app, "fox three", "db")
    clock.forward(9)
    app.sweep()
    assert len(app.contents("fox")) == 3
    clock.forward(1)
    app.sweep()
    assert sorted(app.contents("fox")) == ["fox three", "fox two"]
    clock.forward(1000)
    app.sweep()
    assert app.contents("fox") == ["fox three"]


@pytest.mark.parametrize("due", ["after the switch", "before the switch"])
def test_chunks_of_a_rebuilt_vector_db_expire_in_their_time(
    app: ClockedApp, clock: Clock, due: str
) -> None:
    """A rebuild keeps what a chunk's time is, and does not bring back one whose time came amid it.

    If this fails: after `corral reembed` nothing expires any more.
    """
    app.register("db")
    for content, ttl in (("fox one", 10), ("fox two", 1000), ("fox three", None)):
        insert(app, content, "db", ttl)
    rebuild = f"{id_path('db')}/rebuild"
    app.ok("POST", rebuild, {"language": "nb"})
    assert app.ok("POST", f"{rebuild}/step", {})["done"]
    if due == "before the switch":
        clock.forward(10)
        app.sweep()
    insert(app, "fox four", "db", ttl=1000)
    assert app.ok("POST", f"{rebuild}/switch")["vector_db"]["language"] == "norwegian"
    if due == "after the switch":
        clock.forward(10)
        app.sweep()
    assert sorted(app.contents("fox")) == ["fox four", "fox three", "fox two"]
    clock.forward(1000)
    app.sweep()
    assert app.contents("fox") == ["fox three"]


@pytest.mark.parametrize(("again", "stays"), [(None, True), (5000, True), (5, False)])
def test_the_last_insert_decides(
    app: ClockedApp, clock: Clock, again: int | None, *, stays: bool
) -> None:
    """A chunk that comes again has the life that it came with last, longer, shorter or for ever.

    If this fails: the sweep goes by its notes and not by the chunk, and deletes what was renewed.
    """
    app.register("db")
    insert(app, "fox", "db", ttl=100)
    insert(app, "fox", "db", ttl=again)
    clock.forward(5)
    app.sweep()
    assert bool(app.contents("fox")) is (stays or again == 100)
    clock.forward(100)
    app.sweep()
    assert bool(app.contents("fox")) is stays


def test_a_failed_insert_expires_nothing(app: ClockedApp, clock: Clock) -> None:
    """An insert that is refused leaves the chunk of its id with the life that it had."""
    app.register("db")
    insert(app, "fox", "db")
    chunk: Json = {"content": "fox", "embedding": [1.0]}  # of a wrong dimension
    body = {"vector_db_id": "db", "chunks": [chunk], "ttl_seconds": 5}
    app.refused(400, "POST", "/v1/vector-io/insert", body)
    clock.forward(10)
    app.sweep()
    assert app.contents("fox") == ["fox"]


@pytest.mark.parametrize(
    "expiry",
    [
        {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"},
        {"expires_after": '{"anchor": "created_at", "seconds": 3600}'},
    ],
)
def test_expired_files_go(app: ClockedApp, clock: Clock, expiry: dict[str, str]) -> None:
    """A file is gone when its `expires_after` is over, and the sweep frees its disk.

    If this fails: a file that a client of OpenAI, or of OGX with its JSON, lets expire stays.
    """
    file = app.upload(b"text", **expiry)
    assert file["expires_at"] == clock.now + 3600
    clock.forward(3600)
    assert app.refused(404, "GET", f"/v1/files/{file['id']}")["param"] == "file_id"
    assert app.ok("GET", "/v1/files")["data"] == []
    app.sweep()
    assert not [path for path in (app.home / "blobs").rglob("*") if path.is_file()]


async def test_the_sweep_runs_by_itself(tmp_path: Path) -> None:
    """In the background, what is due is deleted about when it is due, with the real clock."""
    stack = Stack(run_config(), tmp_path)
    sweep = Sweep(stack)
    try:
        registration = {"vector_db_id": "db", "embedding_model": "hashing"}
        await stack.register(VectorDBRegistration.model_validate(registration))
        sweep.start()
        await store_expiring(stack, "db", [Chunk(content="fox")], 1)
        index = await stack.index("db")
        async with asyncio.timeout(30):
            while await index.count():  # noqa: ASYNC110 - the sweep sets no event
                await asyncio.sleep(0.02)
    finally:
        await sweep.close()
        await stack.close()


def test_a_backend_that_is_away_delays_the_sweep(
    app: ClockedApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be deleted is deleted by the next sweep; the rest does not wait for it."""
    store = app.create_store(expires_after=EXPIRY)["id"]
    insert(app, "fox", store)
    app.register("db")
    insert(app, "hound", "db", ttl=60)
    clock.forward(2 * DAY)

    async def away(self: Stack, vector_db_id: str) -> str:
        raise Unavailable("The backend is away.")

    with monkeypatch.context() as patched:
        patched.setattr(Stack, "unregister", away)
        with pytest.raises(Unavailable):
            app.sweep()
    assert app.contents("hound") == []
    assert app.send("GET", id_path(store)).status_code == 200
    app.sweep()
    assert app.send("GET", id_path(store)).status_code == 400
