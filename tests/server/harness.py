"""Servers for the tests of the server: in process, in a thread, and as a process of its own.

All of them run the real parts, SQLite and the hashing embedder, in a folder of the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import uvicorn
import yaml

from corral.providers.base.config import RunConfig
from corral.server.app import create_app
from corral.server.native import rerank
from corral.server.routers import application_at, installed_applications
from corral.server.serving import serve

from .. import state_database

T = TypeVar("T")
Json = dict[str, Any]
JSON = {"content-type": "application/json"}
DIMENSION = 256
START_SECONDS = 120
"""Longest start of a process: it imports all of Corral, beside whatever else runs."""


def run_config(*, dimension: int = DIMENSION, **sections: Any) -> RunConfig:
    """Return a configuration with SQLite and the hashing embedder; `limits=` goes to the server.

    With `CORRAL_TEST_STATE=shared` it has a shared state and a remote engine.
    """
    shared = state_database.shared_sections()
    limits = sections.pop("limits", {})
    hashing = {
        "provider_id": "hashing",
        "provider_type": "inline::hashing",
        "config": {"dimension": dimension},
    }
    return RunConfig.model_validate(
        {
            "providers": {"embedding": [hashing], **shared.pop("providers", {})},
            "default_embedding_model": "hashing",
            "server": {"port": 0, "limits": limits},
            **shared,
            **sections,
        }
    )


def yaml_of(config: RunConfig) -> str:
    """Return a configuration as run.yaml, with the address of its state."""
    shown = config.model_dump(mode="json") | {"state": config.state.get_secret_value()}
    return yaml.safe_dump(shown)


def has_own_errors(path: str) -> bool:
    """Return True if errors at a path are in an application's form."""
    return application_at(path, [rerank.COHERE, *installed_applications([])]) is not None


def id_path(vector_db_id: str) -> str:
    """Return the path of a vector DB: its id percent-encoded, dots too, since `..` is a step up."""
    return "/v1/vector-dbs/" + quote(vector_db_id, safe="").replace(".", "%2E")


class Requests(ABC):
    """The requests of most tests, through one way to send them."""

    @abstractmethod
    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request, `body` as JSON, and return the response."""

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that has to succeed and return what it answered."""
        response = self.send(method, path, body)
        assert response.status_code == 200, response.text
        return response.json()

    def register(self, vector_db_id: str = "db", **settings: Any) -> Json:
        """Register a vector DB with the hashing model."""
        body = {"vector_db_id": vector_db_id, "embedding_model": "hashing", **settings}
        registered: Json = self.ok("POST", "/v1/vector-dbs", body)
        return registered

    def insert(self, *chunks: Json | str, db: str = "db") -> None:
        """Insert chunks; a string is a chunk with that content."""
        bodies = [{"content": c} if isinstance(c, str) else c for c in chunks]
        self.ok("POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": bodies})


class InProcess(Requests):
    """The app without a socket, one request at a time unless `gather` sends several.

    Use it as a context manager: it starts the app's lifespan and ends it.
    """

    def __init__(self, home: Path, config: RunConfig | None = None) -> None:
        self.home = home
        self.app = create_app(config or run_config(), home)

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        with ExitStack() as failed:
            failed.callback(self._runner.close)
            self._run(self._start())
            failed.pop_all()
        return self

    async def _start(self) -> None:
        await self._stack.enter_async_context(self.app.router.lifespan_context(self.app))
        transport = httpx.ASGITransport(app=self.app)
        http = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        self.http = await self._stack.enter_async_context(http)

    def __exit__(self, *raised: object) -> None:
        self._run(self._stack.aclose())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; `Runner.run` would render its result as a string (3.11)."""
        return self._runner.get_loop().run_until_complete(work)

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """Send a request, `body` as JSON, and return the response."""
        if body is not None:
            more = {"content": json.dumps(body).encode(), "headers": JSON, **more}
        return self._run(self.http.request(method, path, **more))

    def gather(self, path: str, bodies: list[Json]) -> list[httpx.Response]:
        """POST all bodies at once and return the responses in their order."""

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(self.http.post(path, json=body) for body in bodies))

        return self._run(all_of_them())

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function on the app's event loop."""

        async def awaited() -> Any:
            return await work()

        return self._run(awaited())

    def query(self, text: Any, db: str = "db", **params: Any) -> Json:
        """Query chunks."""
        body = {"vector_db_id": db, "query": text, "params": params}
        found: Json = self.ok("POST", "/v1/vector-io/query", body)
        return found

    def contents(self, text: str, db: str = "db", **params: Any) -> list[str]:
        """Return the contents of the chunks found, best first."""
        return [chunk["content"] for chunk in self.query(text, db, **params)["chunks"]]

    def rag_insert(self, *documents: Json, db: str = "db", size: int = 64) -> None:
        """Insert documents through the RAG tool."""
        body = {"vector_db_id": db, "documents": list(documents), "chunk_size_in_tokens": size}
        self.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)

    def rag_query(self, question: str, *dbs: str, **config: Any) -> Json:
        """Ask the RAG tool; `config` is the query_config."""
        body = {"content": question, "vector_db_ids": list(dbs or ("db",)), "query_config": config}
        found: Json = self.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
        return found


def message_of(response: httpx.Response) -> str:
    """Return the message of a refusal, after checking the form that every refusal has."""
    body = response.json()
    assert set(body) == {"error", "detail", "request_id"}, body
    assert body["request_id"] == response.headers["x-request-id"]
    assert set(body["error"]) - {"detail"} == {"message", "type", "param", "code"}
    assert body["detail"] == body["error"]["message"]
    assert body["error"]["param"] is None or isinstance(body["error"]["param"], str)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    message: str = body["error"]["message"]
    return message


@contextmanager
def live_server(config: RunConfig, home: Path) -> Iterator[str]:
    """Run uvicorn in a thread on a free port and yield its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each body is 40 ms late
    settings = uvicorn.Config(create_app(config, home), log_config=None, access_log=False)
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()


class ServerProcess:
    """`serve()` in a process of its own, so that it can be stopped and killed like a real one."""

    def __init__(self, home: Path, config: RunConfig | None = None, *, workers: int = 1) -> None:
        (home / "run.yaml").write_text(yaml_of(config or run_config()))
        environment = {**os.environ, "CORRAL_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.log = home / f"server-{time.monotonic_ns()}.log"
        module = serve.__module__
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import serve; serve({workers=})"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        with ExitStack() as failed:
            failed.callback(self.kill)
            wait_until(lambda: self._address() is not None, START_SECONDS)
            failed.pop_all()
        self.url = self._address() or ""

    def _address(self) -> str | None:
        told = self.log.read_text()
        assert self._process.poll() is None, told
        match = re.search(r"running on (http://127\.0\.0\.1:\d+)", told)
        return match and match.group(1)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the server a signal."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Tell the server to stop as an operator does."""
        self.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end of the server, and return its exit code."""
        return self._process.wait(timeout=60)

    def stop(self) -> str:
        """Tell the server to stop, wait for it, and return what it logged."""
        self.terminate()
        self.wait()
        return self.log.read_text()

    def kill(self) -> None:
        """End the server without warning."""
        self._process.kill()
        self._process.wait(timeout=30)


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)
