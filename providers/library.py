"""Corral as a library: open a data folder, register, insert, query, ask.

    import corral.providers.library as corral

    async with corral.open("herd") as herd:
        await herd.register("notes", search_mode="hybrid")
        await herd.insert("notes", {"fence.md": "A fence keeps the sheep in."})
        print((await herd.ask("what keeps sheep in?", "notes")).text)

The server and the command line read the same folder through the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from corral.api.hits import QueryChunksResponse
from corral.api.options import checked
from corral.api.rag import RAGDocument, RAGQueryConfig, RAGQueryResult
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.config import RunConfig, data_home, load_config
from corral.providers.rag.tool import InsertReport, RagTool
from corral.providers.stack import Stack

T = TypeVar("T")

Documents = Mapping[str, str] | Iterable[RAGDocument]
"""Texts by document id, or whole documents."""


def open(home: str | Path | None = None, config: RunConfig | None = None) -> Corral:
    """Open a data folder for use with `async with`.

    Args:
        home: The folder, made where absent; None takes `$CORRAL_HOME`, else `~/.corral`.
        config: What runs; None takes the folder's `run.yaml`, else the defaults.

    Raises:
        UnknownProvider, ConfigError: The configuration cannot work.
    """
    folder = Path(home) if home is not None else data_home()
    return Corral(config or load_config(home=folder), folder)


def open_sync(home: str | Path | None = None, config: RunConfig | None = None) -> SyncCorral:
    """Open a data folder for use with `with`, in notebooks and scripts; else as `open`."""
    return SyncCorral(open(home, config))


class Corral:
    """The vector DBs of one data folder. Opened by `open`; safe for concurrent tasks of one loop.

    Every method raises what `corral.api.errors` draws: InvalidRequest for what cannot be asked,
    NotFound for an unknown vector DB, ProviderError where a backend or a model fails.
    """

    def __init__(self, config: RunConfig, home: Path) -> None:
        self._stack = Stack(config, home)
        self._tool = RagTool(
            self._stack,
            limits=config.server.limits,
            pipeline=self._stack.ingestion.pipeline,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every index and provider."""
        await self._stack.close()

    async def register(
        self, vector_db_id: str, embedding_model: str | None = None, **settings: Any
    ) -> VectorDB:
        """Register a vector DB and return what is stored; the same again returns the stored one.

        Args:
            vector_db_id: Its name, 1 to 255 characters.
            embedding_model: None takes the configuration's default.
            settings: Other fields of `VectorDBRegistration`, such as `search_mode`, `language`,
                `provider_id` or `ranker`.
        """
        fields = {"embedding_model": embedding_model or self._stack.default_model(), **settings}
        return await self._stack.register(
            checked(VectorDBRegistration, {"vector_db_id": vector_db_id, **fields})
        )

    async def unregister(self, vector_db_id: str) -> None:
        """Delete a vector DB with all its chunks."""
        await self._stack.unregister(vector_db_id)

    async def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        return await self._stack.vector_dbs()

    async def insert(self, vector_db_id: str, documents: Documents) -> InsertReport:
        """Parse, split, embed and store documents, all or none; return what was stored.

        A document whose id is stored already is replaced.
        """
        if isinstance(documents, Mapping):
            documents = [
                checked(RAGDocument, {"document_id": name, "content": text})
                for name, text in documents.items()
            ]
        return await self._tool.insert(list(documents), vector_db_id)

    async def query(
        self, question: str, vector_db_id: str, *, k: int = 5, **options: Any
    ) -> QueryChunksResponse:
        """Return the k best chunks, best first.

        Args:
            question: In words; it is embedded where the mode needs that.
            vector_db_id: Where to look.
            k: Most hits, 1 to 1000.
            options: Fields of `RetrievalOptions`, such as `mode`, `filters` or `score_threshold`.
        """
        return await self._tool.retrieval.search(vector_db_id, question, k=k, **options)

    async def ask(
        self, question: str, *vector_db_ids: str, max_tokens: int = 4096, **options: Any
    ) -> RAGQueryResult:
        """Return the context that answers a question; its `text` costs at most `max_tokens`.

        Args:
            question: In words.
            vector_db_ids: Where to look; hits of several are merged by rank.
            max_tokens: Budget of the whole text, frame included.
            options: Fields of `RAGQueryConfig`, such as `max_chunks`, `citations` or `mode`.
        """
        config = checked(RAGQueryConfig, {"max_tokens_in_context": max_tokens, **options})
        return await self._tool.query(question, list(vector_db_ids), config)


class LoopThread:
    """An event loop in a thread of its own, for which no interpreter waits when it ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="corral", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return its result."""
        return self.start(work).result()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the loop and end its threads."""
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncCorral:
    """`Corral` for code without an event loop: one runs in a thread of its own. See `open_sync`.

    A script that ends without `close` ends: what was acknowledged is stored.
    """

    def __init__(self, herd: Corral) -> None:
        self._herd = herd
        self._loop = LoopThread()
        self._run = self._loop.run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every index and provider, then the event loop."""
        if self._loop.closed:
            return
        try:
            self._run(self._herd.close())
        finally:
            self._loop.close()

    def register(
        self, vector_db_id: str, embedding_model: str | None = None, **settings: Any
    ) -> VectorDB:
        """Register a vector DB; see `Corral.register`."""
        return self._run(self._herd.register(vector_db_id, embedding_model, **settings))

    def unregister(self, vector_db_id: str) -> None:
        """Delete a vector DB with all its chunks."""
        self._run(self._herd.unregister(vector_db_id))

    def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        return self._run(self._herd.vector_dbs())

    def insert(self, vector_db_id: str, documents: Documents) -> InsertReport:
        """Store documents, all or none; see `Corral.insert`."""
        return self._run(self._herd.insert(vector_db_id, documents))

    def query(
        self, question: str, vector_db_id: str, *, k: int = 5, **options: Any
    ) -> QueryChunksResponse:
        """Return the k best chunks, best first; see `Corral.query`."""
        return self._run(self._herd.query(question, vector_db_id, k=k, **options))

    def ask(
        self, question: str, *vector_db_ids: str, max_tokens: int = 4096, **options: Any
    ) -> RAGQueryResult:
        """Return the context that answers a question; see `Corral.ask`."""
        return self._run(self._herd.ask(question, *vector_db_ids, max_tokens=max_tokens, **options))
