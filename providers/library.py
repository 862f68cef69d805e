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
import base64
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.api.documents import DocumentCount
from corral.api.errors import InvalidRequest, NotFound
from corral.api.hits import QueryChunksResponse
from corral.api.options import checked
from corral.api.rag import RAGDocument, RAGQueryConfig, RAGQueryResult
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.api.wire import NullsAreDefaults
from corral.providers.config import RunConfig, data_home, load_config
from corral.providers.documents import WHOLE, StoredDocument, delete_document, read_document
from corral.providers.files.store import StoredFile
from corral.providers.ingestion.detecting import TITLED, type_of
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

    async def insert(self, vector_db_id: str, documents: Documents, **options: Any) -> InsertReport:
        """Parse, split, embed and store documents, all or none; return what was stored.

        A document whose id is stored already is replaced.

        Args:
            vector_db_id: Where to.
            documents: Texts by document id, or whole documents.
            options: `chunk_size_in_tokens` (1 to 8192) and `overlap_in_tokens` (at most half of
                it), by default as registered; `skip_unchanged` (default False) leaves documents
                alone that are stored as they would be now.
        """
        chosen = checked(InsertSettings, options)
        return await self._tool.insert(
            _listed(documents),
            _name(vector_db_id),
            chosen.chunk_size_in_tokens,
            chosen.overlap_in_tokens,
            skip_unchanged=chosen.skip_unchanged,
        )

    async def insert_files(
        self,
        vector_db_id: str,
        *paths: str | Path,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        **options: Any,
    ) -> InsertReport:
        """Store files of this machine as documents, each under its name, all or none.

        Args:
            vector_db_id: Where to.
            paths: Files of any format that Corral reads; no folders.
            metadata: Of each document.
            title: Of the only file; None for the one in it, or its name.
            options: As for `insert`.
        """
        if title is not None and len(paths) != 1:
            raise InvalidRequest(f"title is for one file (got {len(paths)}).", field="title")
        about = {**(metadata or {}), **({} if title is None else {"title": title})}
        documents = [await asyncio.to_thread(_file_document, Path(path), about) for path in paths]
        return await self.insert(vector_db_id, documents, **options)

    async def documents(self, vector_db_id: str) -> list[DocumentCount]:
        """Return the documents of a vector DB with their numbers of chunks, by id."""
        index, found = await self._stack.index(_name(vector_db_id)), list[DocumentCount]()
        while page := await index.documents(found[-1].document_id if found else "", 10_000):
            found += page
        return found

    async def document(self, vector_db_id: str, document_id: str) -> StoredDocument:
        """Return a document's metadata and chunks; raises NotFound for an unknown one."""
        index = await self._stack.index(_name(vector_db_id))
        found = await read_document(index, document_id, WHOLE)
        if found is None:
            raise _unknown(vector_db_id, document_id)
        return found

    async def delete_document(self, vector_db_id: str, document_id: str) -> int:
        """Delete a document in one write and return its number of chunks; NotFound if unknown."""
        deleted = await delete_document(await self._stack.index(_name(vector_db_id)), document_id)
        if not deleted:
            raise _unknown(vector_db_id, document_id)
        return deleted

    async def add_file(self, path: str | Path, *, purpose: str = "assistants") -> StoredFile:
        """Store a file of this machine among the uploaded files, and return what was stored.

        To search in it, use `insert_files`, or attach it to a vector store of the server.
        """
        data = await asyncio.to_thread(_bytes, Path(path))

        async def content() -> AsyncIterator[bytes]:
            yield data

        name = Path(path).name
        return await self._stack.files.add(content(), filename=name, purpose=purpose)

    async def files(self) -> list[StoredFile]:
        """Return the uploaded files, oldest first."""
        found: list[StoredFile] = []
        more = True
        while more:
            after = found[-1].file_id if found else None
            page, more = await self._stack.files.page(after=after, order="asc", tenant="")
            found += page
        return found

    async def file(self, file_id: str) -> StoredFile:
        """Return an uploaded file; raises NotFound for an unknown one."""
        return await self._stack.files.get(file_id)

    async def read_file(self, file_id: str) -> bytes:
        """Return the content of an uploaded file; raises NotFound for an unknown one."""
        store = self._stack.files
        return await asyncio.to_thread(store.path(await store.get(file_id)).read_bytes)

    async def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file; documents that were made of it stay."""
        await self._stack.files.delete((await self.file(file_id)).file_id)

    async def query(
        self, question: str, vector_db_id: str, *, k: int = 5, **options: Any
    ) -> QueryChunksResponse:
        """Return the k best chunks, best first.

        Args:
            question: In words; it is embedded where the mode needs that. Empty, with `filters` or
                `order_by`: the chunks that pass, in that order, each with the score 1.
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
            question: In words; or empty, as in `query`.
            vector_db_ids: Where to look; hits of several are merged by rank.
            max_tokens: Budget of the whole text, frame included.
            options: Fields of `RAGQueryConfig`, such as `max_chunks`, `citations` or `mode`.
        """
        names = [_name(each) for each in vector_db_ids]
        return await self._tool.query(_text(question), names, _config(max_tokens, options))


class InsertSettings(NullsAreDefaults):
    """Options of an insert; see `Corral.insert`."""

    chunk_size_in_tokens: int | None = None
    overlap_in_tokens: int | None = None
    skip_unchanged: bool = False


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="paths") from None


def _file_document(path: Path, metadata: Mapping[str, Any]) -> RAGDocument:
    """Return a file as a document: under its name, which is its title if its format has none."""
    kind = type_of(path.name) or ""
    data = base64.b64encode(_bytes(path)).decode("ascii")
    about = {"source": path.name} | ({} if kind in TITLED else {"title": path.stem})
    fields = {"content": {"uri": f"data:{kind};base64,{data}"}, "metadata": {**about, **metadata}}
    return checked(RAGDocument, {"document_id": path.name, **fields})


def _unknown(vector_db_id: str, document_id: str) -> NotFound:
    return NotFound(
        f"There is no document {document_id!r} in vector DB {vector_db_id!r}.",
        hint="`documents` lists them.",
        field="document_id",
    )


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

    def insert(self, vector_db_id: str, documents: Documents, **options: Any) -> InsertReport:
        """Store documents, all or none; see `Corral.insert`."""
        return self._run(self._herd.insert(vector_db_id, documents, **options))

    def insert_files(
        self,
        vector_db_id: str,
        *paths: str | Path,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        **options: Any,
    ) -> InsertReport:
        """Store files as documents, all or none; see `Corral.insert_files`."""
        about: dict[str, Any] = {"metadata": metadata, "title": title, **options}
        return self._run(self._herd.insert_files(vector_db_id, *paths, **about))

    def documents(self, vector_db_id: str) -> list[DocumentCount]:
        """Return the documents of a vector DB, by id."""
        return self._run(self._herd.documents(vector_db_id))

    def document(self, vector_db_id: str, document_id: str) -> StoredDocument:
        """Return a document's metadata and chunks; see `Corral.document`."""
        return self._run(self._herd.document(vector_db_id, document_id))

    def delete_document(self, vector_db_id: str, document_id: str) -> int:
        """Delete a document and return its number of chunks; see `Corral.delete_document`."""
        return self._run(self._herd.delete_document(vector_db_id, document_id))

    def add_file(self, path: str | Path, *, purpose: str = "assistants") -> StoredFile:
        """Store a file among the uploaded files; see `Corral.add_file`."""
        return self._run(self._herd.add_file(path, purpose=purpose))

    def files(self) -> list[StoredFile]:
        """Return the uploaded files, oldest first."""
        return self._run(self._herd.files())

    def file(self, file_id: str) -> StoredFile:
        """Return an uploaded file; see `Corral.file`."""
        return self._run(self._herd.file(file_id))

    def read_file(self, file_id: str) -> bytes:
        """Return the content of an uploaded file."""
        return self._run(self._herd.read_file(file_id))

    def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file; documents that were made of it stay."""
        self._run(self._herd.delete_file(file_id))

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
