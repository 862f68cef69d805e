"""Load generators for a server, with a closed or an open loop.

In a closed loop, each client asks again when it has its answer, so a slow server gets fewer
questions. In an open loop, questions arrive at a fixed rate whether or not the server keeps up, and
each is timed from the moment it was due, so that queueing counts.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

Ask = tuple[str, dict[str, Any]]
"""A path and the request body for it."""

Asks = Iterator[Sequence[Ask]]
"""Questions, each as requests that are sent concurrently."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a load.

    Attributes:
        latencies: Latencies of the requests, in seconds.
        seconds: Time from the first question to the last answer.
        questions: Number of questions; each takes one request or more.
    """

    latencies: tuple[float, ...]
    seconds: float
    questions: int

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def ms(self, share: float) -> float:
        """Return the latency, in milliseconds, that a share of the answers did not exceed."""
        return float(np.quantile(self.latencies, share)) * 1000


class Connection:
    """A persistent connection. A client library would take as long as some answers."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> bytes:
        """Send JSON and return the answer's body.

        Raises:
            RuntimeError: The response is an error.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
        found = await reader.readexactly(size)
        if not answer.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{path}: {found[:300].decode(errors='replace')}")
        return found

    async def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()


async def closed_loop(url: str, asks: Asks, clients: int, seconds: float) -> Answered:
    """Ask from several clients, each without pauses, until the time is up."""
    pool = _Pool(url)
    began = time.perf_counter()

    async def client() -> None:
        while (start := time.perf_counter()) < began + seconds:
            await pool.ask(next(asks), start)

    try:
        await asyncio.gather(*(client() for _ in range(clients)))
    finally:
        await pool.close()
    return pool.answered(time.perf_counter() - began)


async def open_loop(url: str, asks: Asks, rate: float, seconds: float) -> Answered:
    """Ask at a fixed rate until the time is up, and wait for all answers."""
    pool = _Pool(url)
    began = time.perf_counter()

    async def arrival(number: int) -> None:
        due = began + number / rate
        await asyncio.sleep(due - time.perf_counter())
        await pool.ask(next(asks), due)

    try:
        await asyncio.gather(*(arrival(n) for n in range(max(1, int(rate * seconds)))))
    finally:
        await pool.close()
    return pool.answered(time.perf_counter() - began)


class _Pool:
    """A pool of connections that grows with the number of concurrent calls."""

    def __init__(self, url: str) -> None:
        self._latencies: list[float] = []
        self._questions = 0
        self._url = url
        self._free: list[Connection] = []
        self._all: list[Connection] = []

    async def ask(self, requests: Sequence[Ask], due: float) -> None:
        """Send the requests of a question concurrently.

        Record each latency from the time it was due.
        """
        await asyncio.gather(*(self._send(path, body, due) for path, body in requests))
        self._questions += 1

    def answered(self, seconds: float) -> Answered:
        """Return the latencies and the number of questions within a time."""
        return Answered(tuple(self._latencies), seconds, self._questions)

    async def close(self) -> None:
        """Close all of them."""
        for connection in self._all:
            await connection.close()

    async def _send(self, path: str, body: dict[str, Any], due: float) -> None:
        connection = self._free.pop() if self._free else self._new()
        await connection.post(path, body)
        self._free.append(connection)
        self._latencies.append(time.perf_counter() - due)

    def _new(self) -> Connection:
        self._all.append(Connection(self._url))
        return self._all[-1]
