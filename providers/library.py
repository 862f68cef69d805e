"""Corral as a library: open a data folder, register, insert, query, ask.

    import corral.providers.library as corral

    async with corral.open("herd") as herd:
        await herd.register("notes", search_mode="hybrid")
        await herd.insert("notes", {"fence.md": "A fence keeps the sheep in."})
        print((await herd.ask("what keeps sheep in?", "notes")).text)

The server and the command line read the same folder through the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.api.errors import InvalidRequest
from corral.api.hits import QueryChunksResponse
from corral.api.options import checked
from corral.api.rag import RAGDocument, RAGQueryConfig, RAGQueryResult
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.config import RunConfig, data_home, load_config
from corral.providers.loop_thread import LoopThread, closed
from corral.providers.rag.tool import InsertReport, RagTool
from corral.providers.stack import Stack

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

    Every method raises what `corral.api.errors` draws: InvalidRequest for what cannot be asked, and
    for every call after `close`, NotFound for an unknown vector DB, ProviderError where a backend
    or a model fails.
    """

    def __init__(self, config: RunConfig, home: Path) -> None:
        self._all = Stack(config, home)
        self._rag = RagTool(
            self._all,
            limits=config.server.limits,
            pipeline=self._all.ingestion.pipeline,
        )
        self._closed = False

    @property
    def _stack(self) -> Stack:
        if self._closed:
            raise closed()
        return self._all

    @property
    def _tool(self) -> RagTool:
        if self._closed:
            raise closed()
        return self._rag

    async def __aenter__(self) -> Self:
        if self._closed:
            raise closed()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every index and provider."""
        if not self._closed:
            self._closed = True
            await self._all.close()

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
        fields = {"embedding_model": embedding_model, **settings}
        return await self._stack.register(
            checked(VectorDBRegistration, {"vector_db_id": vector_db_id, **fields})
        )

    async def unregister(self, vector_db_id: str) -> None:
        """Delete a vector DB with all its chunks."""
        await self._stack.unregister(_name(vector_db_id))

    async def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        return await self._stack.vector_dbs()

    async def insert(self, vector_db_id: str, documents: Documents) -> InsertReport:
        """Parse, split, embed and store documents, all or none; return what was stored.

        A document whose id is stored already is replaced.
        """
        return await self._tool.insert(_listed(documents), _name(vector_db_id))

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
        name, text = _name(vector_db_id), _text(question)
        return await self._tool.retrieval.search(name, text, k=k, **options)

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
        names = [_name(each) for each in vector_db_ids]
        return await self._tool.query(_text(question), names, _config(max_tokens, options))


def _text(question: object) -> str:
    if not isinstance(question, str):
        raise InvalidRequest(
            f"question must be a string (got {type(question).__name__}).", field="question"
        )
    return question


def _config(max_tokens: int, options: Mapping[str, Any]) -> RAGQueryConfig:
    """Return the options of a question; what is wrong with its budget is said of `max_tokens`."""
    try:
        return checked(RAGQueryConfig, {"max_tokens_in_context": max_tokens, **options})
    except InvalidRequest as error:
        if error.field != "max_tokens_in_context" or error.field in options:
            raise
        message = error.message.replace(error.field, "max_tokens", 1)
        raise InvalidRequest(message, hint=error.hint, field="max_tokens") from None


def _name(vector_db_id: object) -> str:
    if not isinstance(vector_db_id, str):
        raise InvalidRequest(
            f"A vector DB's id must be a string (got {type(vector_db_id).__name__}).",
            hint='`ask` takes several one after the other: ask("...", "notes", "mail").'
            if isinstance(vector_db_id, Iterable)
            else "",
            field="vector_db_id",
        )
    return vector_db_id


def _listed(documents: object) -> list[RAGDocument]:
    if isinstance(documents, Mapping):
        return [_document(name, text) for name, text in documents.items()]
    # Both can be iterated over, and hold no documents.
    if isinstance(documents, str | RAGDocument) or not isinstance(documents, Iterable):
        raise _no_documents("documents", "a mapping of texts by id, or a list", documents)
    listed = list(documents)
    for number, each in enumerate(listed):
        if not isinstance(each, RAGDocument):
            raise _no_documents(f"documents[{number}]", "a RAGDocument", each)
    return listed


def _no_documents(where: str, wanted: str, found: object) -> InvalidRequest:
    return InvalidRequest(
        f"{where} must be {wanted} (got {type(found).__name__}).",
        hint='Send {"fence.md": "A fence ..."}, or a list of RAGDocument.',
        field=where,
    )


def _document(name: object, text: object) -> RAGDocument:
    try:
        return checked(RAGDocument, {"document_id": name, "content": text})
    except InvalidRequest as error:
        message = f"Document {str(name)[:255]!r}: {error.message}"
        raise InvalidRequest(message, hint=error.hint, field=error.field) from None


class SyncCorral:
    """`Corral` for code without an event loop: one runs in a thread of its own. See `open_sync`.

    A script that ends without `close` ends: what was acknowledged is stored.
    """

    def __init__(self, herd: Corral) -> None:
        self._herd = herd
        self._loop = LoopThread()
        self._run = self._loop.run

    def __enter__(self) -> Self:
        if self._loop.closed:
            raise closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every index and provider, then the event loop; calls of other threads fail."""
        if not self._loop.closed:
            self._loop.close(self._herd.close())

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
