"""What holds of every backend that is a server of its own, killed and frozen; for subclasses."""

from __future__ import annotations

import asyncio
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ProviderError, ProviderTimeout, Unavailable
from corral.api.provider import Capabilities, VectorIOProvider
from corral.api.testing.oracle import bm25
from corral.api.vector_dbs import VectorDB

from .registrations import registration

PROVIDER_ID = "farm"
MODES = ("vector", "keyword", "hybrid")
MOST_SECONDS = 30
"""Longest answer when the server is gone. Providers are made with timeouts of 2 seconds at most; a
busy machine gets the rest."""

PLANS = ((1,), (1, 2), (1, 0), (1, 2, 0))
"""The versions that a document goes through."""

T = TypeVar("T")


class Killable(Protocol):
    """A real server on 127.0.0.1; its port and its data stay the same."""

    def launch(self) -> None:
        """Start its process."""

    def wait(self) -> None:
        """Wait until it answers."""

    def kill(self) -> None:
        """Kill it with SIGKILL, all of its processes."""

    def freeze(self) -> None:
        """Stop it with SIGSTOP: connections stay open, and nobody answers."""

    def thaw(self) -> None:
        """Let it go on."""


S = TypeVar("S", bound=Killable)


class ServerFaults(ABC, Generic[S]):
    """Kill -9 while queries and writes are under way, then a restart on the same port and data.

    One provider object lives through all of it. A subclass says how it is made; its folder has a
    fixture `own_server`, a server that is not running yet.
    """

    capabilities: ClassVar[Capabilities]

    @abstractmethod
    def provider(self, server: S, folder: Path) -> VectorIOProvider:
        """Return a provider named `PROVIDER_ID`, whose timeouts are 2 seconds at most."""

    @pytest.fixture(autouse=True)
    async def closing(self) -> AsyncIterator[None]:
        """Close a test's providers behind it."""
        self._providers: list[VectorIOProvider] = []
        yield
        for one in self._providers:
            await one.close()

    def opened(self, server: S, folder: Path) -> VectorIOProvider:
        """Return a provider that is closed behind the test."""
        self._providers.append(self.provider(server, folder))
        return self._providers[-1]

    async def test_a_server_that_comes_up_late_is_not_too_late(
        self, own_server: S, tmp_path: Path
    ) -> None:
        """Opening and health name the provider in time while nobody listens, and work afterwards.

        If this fails: a client that was made while the server was down is kept.
        """

        provider, db = self.opened(own_server, tmp_path), registered()
        assert issubclass(await refusal(provider.open_index(db, create=True)), Unavailable)
        assert PROVIDER_ID in await complaint(provider)
        start(own_server)
        assert await complaint(provider) == ""
        index = await provider.open_index(db, create=True)
        await index.add_chunks(*document("d", 1))
        assert await index.count() == 4
        await index.delete()

    async def test_killed_during_queries(self, own_server: S, tmp_path: Path) -> None:
        """Nine askers go on through a kill and a restart: each answer is the right one or says 503
        or 504 with the provider's name, in time; the other errors of a restart are not shown.

        If this fails after the restart: broken connections, or a state of the server's that is
        gone, are kept.
        """

        start(own_server)
        provider = self.opened(own_server, tmp_path)
        index = await provider.open_index(registered(), create=True)
        for number in range(10):
            await index.add_chunks(*document(f"d{number}", 1))
        right = {mode: await answer(index, mode) for mode in MODES}
        refused = asyncio.Event()
        end = asyncio.Event()

        async def ask(mode: str) -> None:
            while not end.is_set():
                found = await outcome(answer(index, mode))
                if isinstance(found, type):
                    refused.set()
                    await asyncio.sleep(0.02)
                else:
                    assert found == right[mode]

        async with asyncio.TaskGroup() as askers:
            for mode in 3 * MODES:
                askers.create_task(ask(mode))
            await asyncio.sleep(0.2)
            own_server.kill()
            await refused.wait()
            assert PROVIDER_ID in await complaint(provider)
            own_server.launch()
            await asyncio.to_thread(own_server.wait)
            await asyncio.sleep(0.2)
            end.set()
        assert {mode: await answer(index, mode) for mode in MODES} == right
        assert await complaint(provider) == ""
        await index.delete()

    async def test_killed_during_writes(self, own_server: S, tmp_path: Path) -> None:
        """A kill amid adding, replacing and deleting: what was acknowledged is there, whole.

        A call that was not acknowledged is there whole or not at all where the provider is
        transactional; sent again, it is there whole everywhere. All legs see the same chunks, and
        keyword scores are the definition's.
        """

        start(own_server)
        provider = self.opened(own_server, tmp_path)
        index = await provider.open_index(registered(), create=True)
        log = Log(index)
        async with asyncio.TaskGroup() as writers:
            for name in "abc":
                writers.create_task(log.write(name, index))
            await log.reached(25)
            own_server.kill()
        start(own_server)
        await log.check(transactional=self.capabilities.transactional)
        await index.close()
        index = await provider.open_index(index.vector_db)
        assert await index.count() == len(log.expected())
        await index.delete()

    async def test_writes_go_on_through_kills(self, own_server: S, tmp_path: Path) -> None:
        """Six clients send each call until it is acknowledged, through a kill, and go on at once;
        after another kill and a start, all that was acknowledged is there.

        If this fails: the server, or this process, treats the first requests after a start amiss
        when there are several at once.
        """

        start(own_server)
        db = registered()
        clients = [self.opened(own_server, tmp_path / name) for name in "abcdef"]
        indexes = [await client.open_index(db, create=True) for client in clients]
        log = Log(indexes[0], persistent=True)
        async with asyncio.TaskGroup() as writers:
            for name, index in zip("abcdef", indexes, strict=True):
                writers.create_task(log.write(name, index))
            await log.reached(20)
            own_server.kill()
            own_server.launch()
            await asyncio.to_thread(own_server.wait)
            await log.reached(60)
            log.persistent = False
            own_server.kill()
        start(own_server)
        await log.check(transactional=self.capabilities.transactional)
        for index in indexes[1:]:
            await index.close()
        await indexes[0].delete()

    async def test_frozen(self, own_server: S, tmp_path: Path) -> None:
        """A server that neither answers nor hangs up: 504 in bounded time, then it goes on."""

        start(own_server)
        provider = self.opened(own_server, tmp_path)
        index = await provider.open_index(registered(), create=True)
        await index.add_chunks(*document("d", 1))
        own_server.freeze()
        try:
            silent, _, said = await asyncio.gather(
                refusal(answer(index, "vector")),
                refusal(index.add_chunks(*document("e", 1))),
                complaint(provider),
            )
            assert silent is ProviderTimeout
            assert PROVIDER_ID in said
        finally:
            own_server.thaw()
        await index.add_chunks(*document("e", 1))
        assert await index.count() == 8
        assert await complaint(provider) == ""
        await index.delete()


def start(server: Killable) -> None:
    """Start a server and wait until it answers."""
    server.launch()
    server.wait()


class Log:
    """What writers were told of each document: which version is stored, 0 for none.

    Args:
        index: Where it is checked.
        persistent: Whether a call that was refused is sent again.
    """

    def __init__(self, index: EmbeddingIndex, *, persistent: bool = False) -> None:
        self._index = index
        self.persistent = persistent
        self.stored: dict[str, int] = {}
        self.open: dict[str, int] = {}  # calls that were not acknowledged
        self._calls = 0
        self._awaited = 0
        self._reached = asyncio.Event()
        self._rounds = count()

    async def write(self, name: str, index: EmbeddingIndex) -> None:
        """Add, replace and delete one document after the other until the server is gone."""
        first = f"{name}{next(self._rounds)}"
        for number in count():
            for version in PLANS[number % len(PLANS)]:
                document_id = f"{first}-{number}"
                self.open[document_id] = version
                while isinstance(await outcome(self.send(document_id, index)), type):
                    if not self.persistent:
                        return
                    await asyncio.sleep(0.01)
                self.stored[document_id] = self.open.pop(document_id)
                self._calls += 1
                if self._calls == self._awaited:
                    self._reached.set()

    async def reached(self, calls: int) -> None:
        """Wait for so many acknowledged calls, more than there are."""
        self._awaited = calls
        self._reached.clear()
        await self._reached.wait()

    async def send(self, document_id: str, index: EmbeddingIndex) -> None:
        """Send the open call of a document."""
        version = self.open[document_id]
        if version:
            chunks, embeddings = document(document_id, version)
            await index.add_chunks(chunks, embeddings, replace_documents={document_id})
        else:
            await index.delete_chunks(list(texts(document_id, self.stored[document_id])))

    async def check(self, *, transactional: bool) -> None:
        """Compare with what is stored, then send the open calls again and compare once more."""
        for document_id, version in self.stored.items():
            if document_id not in self.open:
                assert await self._found(document_id) == texts(document_id, version)
        for document_id, version in self.open.items():
            before = self.stored.get(document_id, 0)
            if transactional or not before:
                whole = (texts(document_id, before), texts(document_id, version))
                assert await self._found(document_id) in whole
            await self.send(document_id, self._index)
            assert await self._found(document_id) == texts(document_id, version)
        self.stored |= self.open
        self.open.clear()
        expected = self.expected()
        assert await self._index.count() == len(expected)
        for mode in MODES:
            found = await self._index.query([1, 0], "zebra", k=1000, mode=mode)
            assert {c.chunk_id: c.content for c in found.chunks} == expected
        hits = (await self._index.query(None, "zebra part3", k=1000, mode="keyword")).hits
        raw = {hit.chunk.chunk_id: hit.explanation.legs["keyword"].raw_score for hit in hits}
        fields = {chunk_id: {"content": text} for chunk_id, text in expected.items()}
        assert raw == pytest.approx(bm25("zebra part3", fields, {"content": 1.0}), abs=1e-6)

    def expected(self) -> dict[str, str]:
        """Return what is to be stored, by chunk id."""
        stored = (texts(*one) for one in self.stored.items())
        return {chunk_id: text for one in stored for chunk_id, text in one.items()}

    async def _found(self, document_id: str) -> dict[str, str]:
        ids = [i for version in (1, 2) for i in texts(document_id, version)]
        return {chunk.chunk_id: chunk.content for chunk in await self._index.get_chunks(ids)}


def texts(document_id: str, version: int) -> dict[str, str]:
    """Return the texts of a document by chunk id: four; two ids are in both versions."""
    places = {0: range(0), 1: range(4), 2: range(2, 6)}[version]
    return {f"{document_id}-{n}": f"zebra version{version} part{n}" for n in places}


def document(document_id: str, version: int) -> tuple[list[Chunk], NDArray[np.float32]]:
    """Return the chunks and embeddings of a document, the same each time."""
    metadata = {"document_id": document_id}
    chunks = [
        Chunk(chunk_id=chunk_id, content=text, metadata=metadata)
        for chunk_id, text in texts(document_id, version).items()
    ]
    seed = zlib.crc32(f"{document_id} {version}".encode())
    embeddings = np.random.default_rng(seed).normal(size=(len(chunks), 2))
    return chunks, embeddings.astype(np.float32)


def registered() -> VectorDB:
    """Return a registration of its own."""
    return registration(
        PROVIDER_ID,
        language="simple",
        field_weights={"content": 1.0},
        created_at=time.time(),
    )


async def answer(index: EmbeddingIndex, mode: str) -> list[tuple[str, float]]:
    """Return the ids and scores that one query finds."""
    found = await index.query([1, 0], "zebra part3", k=7, mode=mode)
    return [(hit.chunk.chunk_id, hit.score) for hit in found.hits]


async def outcome(work: Awaitable[T]) -> T | type[Exception]:
    """Return what work returns, or the class of its error: 503 or 504, named, in time."""
    began = time.monotonic()
    try:
        return await work
    except (Unavailable, ProviderTimeout) as error:
        return checked(error)
    finally:
        assert time.monotonic() - began < MOST_SECONDS


def checked(error: ProviderError) -> type[Exception]:
    """Return the class of an error that says whose it is, and that it can be tried again."""
    assert error.retryable
    assert PROVIDER_ID in error.message
    return type(error)


async def refusal(work: Awaitable[Any]) -> type[Exception]:
    """Return the class of the error that work has to end with."""
    found = await outcome(work)
    assert isinstance(found, type)
    return found


async def complaint(provider: VectorIOProvider) -> str:
    """Return what the health check says, "" when all is well."""
    began = time.monotonic()
    health = await provider.health()
    assert time.monotonic() - began < MOST_SECONDS
    assert (health.status == "OK") == (health.message == "")
    return health.message
