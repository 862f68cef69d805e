"""A clock that tests set, and the app in process that goes by it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx

from corral.providers.base.config import RunConfig
from corral.providers.stack.background import Sweep
from corral.providers.stack.stack import Stack
from corral.server.app import create_app

from ..harness import InProcess, Json, message_of, run_config

DAY = 86_400
PATIENT = {"wait_seconds": 30}
"""Settings of `ingestion` with which attached files are read when the answer comes, on a busy
machine too."""


class Clock:
    """A clock that begins at the real time and is moved by hand."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        """Return the time, in Unix seconds."""
        return self.now

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class ClockedApp(InProcess):
    """The app in process; what expires goes by the clock of the test."""

    def __init__(self, home: Path, clock: Clock, config: RunConfig | None = None) -> None:
        self.home = home
        self.app = create_app(config or run_config(ingestion=PATIENT), home, clock=clock)

    @property
    def stack(self) -> Stack:
        """The app's stack."""
        stack: Stack = self.app.state.stack
        return stack

    def sweep(self) -> None:
        """Delete what has expired."""
        self.run(Sweep(self.stack).once)

    def create_store(self, **fields: Any) -> Json:
        """Create a vector store and return it."""
        created: Json = self.ok("POST", "/v1/vector_stores", fields)
        return created

    def search(self, store: str, query: Any, **more: Any) -> Json:
        """Search a vector store and return the page."""
        body = {"query": query, **more}
        found: Json = self.ok("POST", f"/v1/vector_stores/{store}/search", body)
        return found

    def texts(self, store: str, query: Any, **more: Any) -> list[str]:
        """Return the texts that a search finds, best first."""
        return [each["content"][0]["text"] for each in self.search(store, query, **more)["data"]]

    def upload(
        self, content: bytes, name: str = "a.txt", purpose: str = "assistants", **fields: str
    ) -> Json:
        """Upload a file and return it."""
        response = self.send_file(content, name, purpose=purpose, **fields)
        assert response.status_code == 200, response.text
        uploaded: Json = response.json()
        return uploaded

    def send_file(self, content: bytes, name: str = "a.txt", **fields: str) -> httpx.Response:
        """Send a file as a form, as clients do."""
        return self.send("POST", "/v1/files", files={"file": (name, content)}, data=fields)

    def read(self, store: str, file_id: str) -> Json:
        """Return a file of a store, once it is read or has failed."""

        async def done() -> Json:
            while True:
                shown: Json = (await self.http.get(f"{store}/files/{file_id}")).json()
                if shown.get("status") != "in_progress":
                    return shown
                await asyncio.sleep(0.01)

        async def in_time() -> Json:
            return await asyncio.wait_for(done(), 60)

        found: Json = self.run(in_time)
        return found

    def refused(
        self, status: int, method: str, path: str, body: Any = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request that has to be refused and return its `error`."""
        response = self.send(method, path, body, **more)
        assert response.status_code == status, response.text
        message_of(response)
        error: dict[str, Any] = json.loads(response.content)["error"]
        return error
