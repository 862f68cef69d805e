"""The operator's limits: each refusal is a clear 4xx that names the setting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.types import Message

from corral.providers.base.config import Limits
from corral.providers.ingestion.storing import store
from corral.server import bodies

from .harness import JSON, InProcess, Json, id_path, live_server, message_of, run_config

SMALL = {
    "max_body_mib": 0.01,
    "max_k": 5,
    "max_chunks_per_insert": 2,
    "max_documents_per_insert": 2,
    "max_vector_dbs_per_query": 2,
    "max_concurrent_inserts": 2,
}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[InProcess]:
    """Yield an app with small limits and a vector DB."""
    with InProcess(tmp_path, run_config(limits=SMALL)) as app:
        app.register()
        yield app


CASES: list[tuple[str, Json, str, str]] = [
    (
        "/v1/vector-io/query",
        {"vector_db_id": "db", "query": "x", "params": {"max_chunks": 6}},
        "params.max_chunks",
        "max_k",
    ),
    (
        "/v1/tool-runtime/rag-tool/query",
        {"content": "x", "vector_db_ids": ["db"], "query_config": {"max_chunks": 6}},
        "query_config.max_chunks",
        "max_k",
    ),
    (
        "/v1/tool-runtime/invoke",
        {
            "tool_name": "knowledge_search",
            "kwargs": {"query": "x", "vector_db_ids": ["db"], "query_config": {"max_chunks": 6}},
        },
        "kwargs.query_config.max_chunks",
        "max_k",
    ),
    (
        "/v1/vector-io/insert",
        {"vector_db_id": "db", "chunks": [{"content": f"fox {n}"} for n in range(3)]},
        "chunks",
        "max_chunks_per_insert",
    ),
    (
        "/v1/tool-runtime/rag-tool/insert",
        {
            "vector_db_id": "db",
            "documents": [{"document_id": f"{n}", "content": "fox"} for n in range(3)],
        },
        "documents",
        "max_documents_per_insert",
    ),
    (
        "/v1/tool-runtime/rag-tool/query",
        {"content": "x", "vector_db_ids": ["db", "db2", "db3"]},
        "vector_db_ids",
        "max_vector_dbs_per_query",
    ),
]


@pytest.mark.parametrize(("path", "body", "param", "setting"), CASES)
def test_each_limit_names_its_setting(
    small: InProcess, path: str, body: Json, param: str, setting: str
) -> None:
    """Beyond a limit the answer is a 400 that names the field, the bound and the setting."""
    response = small.send("POST", path, body)
    assert response.status_code == 400
    message = message_of(response)
    assert f"server.limits.{setting}" in message
    assert str(SMALL[setting]) in message
    assert response.json()["error"]["param"] == param
    assert small.contents("fox") == []


def test_the_limits_themselves_are_allowed(small: InProcess) -> None:
    """Exactly as many as a limit says are served."""
    small.insert("fox one", "fox two")
    assert len(small.contents("fox", max_chunks=5)) == 2
    small.register("db2")
    assert small.rag_query("fox", "db", "db2", max_chunks=5)["content"]
    document: Json = {"content": "owl", "metadata": {}}
    small.rag_insert({**document, "document_id": "a"}, {**document, "document_id": "b"})


def test_every_limit_is_tested() -> None:
    """No limit of the configuration is without a test here."""
    elsewhere = {"max_snapshot_mib"}  # tests/server/test_snapshots.py
    assert set(SMALL) | elsewhere == set(Limits.model_fields)


class Sender:
    """An ASGI client of its own, which notes how much it had sent when the answer began.

    Args:
        declared: The content-length, or None for a chunked body.
        parts: KiB of body that it would send.
    """

    def __init__(self, declared: int | None, parts: int) -> None:
        length = [] if declared is None else [(b"content-length", b"%d" % declared)]
        self.headers = [(b"content-type", b"application/json"), *length]
        self.parts = parts
        self.taken = 0
        self.taken_before_answer = -1
        self.messages: list[Message] = []

    async def post(self, app: InProcess, path: str) -> None:
        """Send the request to the app."""
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": self.headers, "root_path": "", "scheme": "http",
        }  # fmt: skip
        await app.app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        self.taken += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": self.taken < self.parts}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.taken_before_answer = self.taken
        self.messages.append(message)


@pytest.mark.parametrize("path", ["/v1/vector-dbs", "/v1/health", "/nowhere"])
def test_a_declared_body_over_the_limit_is_refused_unread(small: InProcess, path: str) -> None:
    """A Content-Length over the limit is a 413 before the first byte of the body is read."""
    sender = Sender(declared=20_000, parts=20)
    small.run(lambda: sender.post(small, path))
    start, body, *_ = sender.messages
    assert start["status"] == 413
    assert (b"connection", b"close") in start["headers"]
    assert b"server.limits.max_body_mib" in body["body"]
    assert sender.taken_before_answer == 0


@pytest.mark.parametrize("path", ["/v1/vector-dbs", "/v1/vector-io/insert"])
def test_a_chunked_body_over_the_limit_is_refused_on_the_way(small: InProcess, path: str) -> None:
    """A body without a length is read up to the limit and no further."""
    sender = Sender(declared=None, parts=1000)
    small.run(lambda: sender.post(small, path))
    start, body, *_ = sender.messages
    assert start["status"] == 413
    assert (b"connection", b"close") in start["headers"]
    assert b"server.limits.max_body_mib" in body["body"]
    assert sender.taken_before_answer == 11


def test_an_endless_body_is_cut_off(small: InProcess) -> None:
    """What comes after a 413 is thrown away for a while; then the connection is closed."""

    class Endless(Sender):
        async def _receive(self) -> Message:
            await asyncio.sleep(0.001)
            return await super()._receive()

    sender = Endless(declared=10**15, parts=10**12)
    small.run(lambda: sender.post(small, "/v1/vector-dbs"))
    assert sender.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_body_within_the_limit_passes(small: InProcess) -> None:
    """The limit is on bytes of the body, the last one included."""
    most = int(float(SMALL["max_body_mib"]) * 1024 * 1024)
    body = b'{"vector_db_id": "db2", "embedding_model": "hashing"}'
    fits = body + b" " * (most - len(body))
    assert small.send("POST", "/v1/vector-dbs", content=fits, headers=JSON).status_code == 200
    response = small.send("POST", "/v1/vector-dbs", content=fits + b" ", headers=JSON)
    assert response.status_code == 413


@pytest.mark.parametrize("chunked", [True, False])
async def test_ordinary_clients_get_to_see_the_413(tmp_path: Path, chunked: bool) -> None:
    """httpx, which looks for the answer when it has sent all, gets it, with a length and chunked.

    If this fails: the connection is reset under the client, which reports a network problem.
    """

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(2000):
            yield b" " * 10_000

    body = parts() if chunked else b" " * 20_000_000

    async def post(url: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=url) as client:
            return await client.post("/v1/vector-dbs", content=body, headers=JSON)

    with live_server(run_config(limits=SMALL), tmp_path) as url:
        answer = await post(url)
    assert answer.status_code == 413
    assert "max_body_mib" in message_of(answer)


def test_inserts_beyond_the_limit_wait(small: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most max_concurrent_inserts inserts into a provider work at once; others wait and succeed.

    If this fails: enough large inserts at once exhaust the memory.
    """
    working = most = 0

    async def slow(*given: Any, **more: Any) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0.02)
        await store(*given, **more)
        working -= 1

    monkeypatch.setattr("corral.providers.stack.expiry.store", slow)
    inserts: list[Json] = [
        {"vector_db_id": "db", "chunks": [{"content": f"fox {n}"}]} for n in range(8)
    ]
    answers = small.gather("/v1/vector-io/insert", inserts)
    assert {answer.status_code for answer in answers} == {200}
    assert most == 2


HANGING: list[tuple[str, Json]] = [
    ("/v1/vector-io/insert", {"vector_db_id": "far", "chunks": [{"content": "fox"}]}),
    (
        "/v1/tool-runtime/rag-tool/insert",
        {"vector_db_id": "far", "documents": [{"document_id": "a", "content": "fox"}]},
    ),
    (f"{id_path('near')}/copy", {"target_id": "far"}),
    (f"{id_path('near')}/copy", {"target_id": "far", "provider_id": "farm"}),
    (f"{id_path('far')}/copy", {"target_id": "near"}),
    (f"{id_path('far')}/copy", {"target_id": "new", "provider_id": "sqlite"}),
]


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[InProcess]:
    """Yield an app with `near` on SQLite and `far` on the provider `farm`, a chunk in each."""
    entries = {"sqlite": "inline::sqlite", "farm": "inline::memory"}
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    providers = {
        "vector_io": [{"provider_id": i, "provider_type": t} for i, t in entries.items()],
        "embedding": [{**hashing, "config": {"dimension": 64}}],
    }
    with InProcess(tmp_path, run_config(limits=SMALL, providers=providers)) as app:
        for db, provider_id in (("near", "sqlite"), ("far", "farm")):
            app.register(db, provider_id=provider_id, ranker={"type": "rrf"})
            app.insert("fox", db=db)
        yield app


@pytest.mark.parametrize(("path", "body"), HANGING)
def test_a_backend_that_hangs_holds_its_own_slots_only(
    farm: InProcess, monkeypatch: pytest.MonkeyPatch, path: str, body: Json
) -> None:
    """More inserts than slots, or copies, wait for one backend; inserts into the others go on.

    Those without a slot are not even parsed, as that multiplies their size.
    If this fails: one backend that is down stops all writing until its timeout.
    """
    parsed, two = 0, asyncio.Event()
    validate = bodies._validate

    def counted(raw: bytes, model: type[BaseModel]) -> BaseModel:
        nonlocal parsed
        parsed += 1
        if parsed == 2:
            two.set()
        return validate(raw, model)

    async def scenario() -> list[int]:
        answers = asyncio.Event()
        far = (await farm.app.state.stack.index("far")).engine
        for call in ("add", "get", "count"):
            monkeypatch.setattr(far, call, waiting_for(answers, getattr(far, call)))
        hanging = [asyncio.create_task(farm.http.post(path, json=body)) for _ in range(5)]
        await two.wait()
        quick: Json = {"vector_db_id": "near", "chunks": [{"content": "owl"}]}
        near = await asyncio.wait_for(farm.http.post("/v1/vector-io/insert", json=quick), 60)
        assert not any(task.done() for task in hanging)
        assert parsed == 3, "two of those that hang, and the quick one"
        answers.set()
        return [one.status_code for one in (near, *await asyncio.gather(*hanging))]

    monkeypatch.setattr(bodies, "_validate", counted)
    assert farm.run(scenario) == [200] * 6


def waiting_for(event: asyncio.Event, hook: Callable[..., Awaitable[Any]]) -> Any:
    """Return a hook of an index that does its work when something has happened."""

    async def wait(*given: Any) -> Any:
        await event.wait()
        return await hook(*given)

    return wait


def test_a_slow_sender_holds_no_slot(small: InProcess) -> None:
    """An insert whose body is still under way does not keep others from working."""
    arrived = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"vector_db_id": "db", '
        await arrived.wait()
        yield b'"chunks": []}'

    async def others_first() -> list[int]:
        url = "/v1/vector-io/insert"
        slow = [
            asyncio.create_task(small.http.post(url, content=slowly(), headers=JSON))
            for _ in range(2)
        ]
        await asyncio.sleep(0.01)
        quick = await asyncio.wait_for(
            small.http.post(url, json={"vector_db_id": "db", "chunks": []}), timeout=60
        )
        arrived.set()
        return [answer.status_code for answer in (quick, *await asyncio.gather(*slow))]

    assert small.run(others_first) == [200, 200, 200]


def test_a_large_body_does_not_stop_the_server(tmp_path: Path) -> None:
    """While a body of many megabytes is parsed, other requests are answered.

    If this fails: parsing blocks the event loop, and one insert delays every query.
    """
    chunk = '{"content": "fox %d", "embedding": [' + ", ".join(["0.123456789"] * 256) + "]}"
    body = '{"vector_db_id": "nope", "chunks": [' + ", ".join(chunk % n for n in range(8000)) + "]}"
    with InProcess(tmp_path) as app:

        async def pings() -> tuple[int, int]:
            """Return how many pings were answered before the body was."""
            large = asyncio.create_task(
                app.http.post("/v1/vector-io/insert", content=body.encode(), headers=JSON)
            )
            answered = 0
            while not large.done():
                await asyncio.sleep(0.005)
                assert (await app.http.get("/v1/health")).status_code == 200
                answered += not large.done()
            return answered, (await large).status_code

        answered, status = app.run(pings)
    assert status == 400  # there is no such vector DB, which is known after parsing only
    assert answered >= 5
