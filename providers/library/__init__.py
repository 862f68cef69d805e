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
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.api.documents import DocumentCount
from corral.api.errors import InvalidRequest
from corral.api.hits import QueryChunksResponse
from corral.api.options import checked
from corral.api.rag import RAGQueryResult
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.base.config import RunConfig, data_home, load_config
from corral.providers.base.documents import (
    WHOLE,
    StoredDocument,
    all_documents,
    delete_document,
    read_document,
    unknown_document,
)
from corral.providers.files.store import StoredFile
from corral.providers.ingestion.ingest import InsertReport
from corral.providers.library.arguments import (
    Documents,
    InsertSettings,
    content_of,
    context_options,
    document_of_file,
    documents_of,
    name_of,
    question_of,
)
from corral.providers.library.loop_thread import LoopThread, closed
from corral.providers.rag.answer import Answer, Answerer, Ask
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack

LISTED = "`documents` lists them."
"""The hint for an unknown document."""


def open(home: str | Path | None = None, config: RunConfig | None = None) -> Corral:
    """Open a data folder for use with `async with`.

    Args:
        home: The folder, created if missing; None for `$CORRAL_HOME`, or else `~/.corral`.
        config: The configuration; None for the folder's `run.yaml`, or else the defaults.

    Raises:
        UnknownProvider, ConfigError: The configuration is invalid.
    """
    folder = Path(home) if home is not None else data_home()
    return Corral(config or load_config(home=folder), folder)


def open_sync(home: str | Path | None = None, config: RunConfig | None = None) -> SyncCorral:
    """Open a data folder for use with `with`, in notebooks and scripts; otherwise like `open`."""
    return SyncCorral(open(home, config))


class Corral:
    """The vector DBs of one data folder. Opened by `open`; safe for concurrent tasks of one loop.

    Every method raises errors of `corral.api.errors`: InvalidRequest for invalid arguments and for
    calls after `close`, NotFound for an unknown vector DB, ProviderError if a backend or a model
    fails.
    """

    def __init__(self, config: RunConfig, home: Path) -> None:
        self._all = Stack(config, home)
        self._rag = RagTool(self._all, limits=config.server.limits)
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
        """Register a vector DB and return its registration; registering the same again is allowed.

        Args:
            vector_db_id: Its name, 1 to 255 characters.
            embedding_model: None for the configuration's default.
            settings: Other fields of `VectorDBRegistration`, such as `search_mode`, `language`,
                `provider_id` or `ranker`.
        """
        fields = {"embedding_model": embedding_model, **settings}
        return await self._stack.register(
            checked(VectorDBRegistration, {"vector_db_id": vector_db_id, **fields})
        )

    async def unregister(self, vector_db_id: str) -> None:
        """Delete a vector DB with all its chunks."""
        await self._stack.unregister(name_of(vector_db_id))

    async def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        return await self._stack.vector_dbs()

    async def insert(self, vector_db_id: str, documents: Documents, **options: Any) -> InsertReport:
        """Parse, split, embed and store documents, all or none; return a report.

        A stored document with the same id is replaced.

        Args:
            vector_db_id: The vector DB to insert into.
            documents: Texts by document id, or whole documents.
            options: `chunk_size_in_tokens` (1 to 8192) and `overlap_in_tokens` (at most half of it)
                and `split_on` (a text, or a level of headings, at which chunks end), by default as
                registered;
                `skip_unchanged` (default False) skips documents that are already stored in the same
                form.
        """
        chosen = checked(InsertSettings, options)
        return await self._stack.ingestion.insert(
            documents_of(documents),
            name_of(vector_db_id),
            chosen.chunk_size_in_tokens,
            chosen.overlap_in_tokens,
            chosen.split_on,
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
        """Store local files as documents, each under its name, all or none.

        Args:
            vector_db_id: The vector DB to insert into.
            paths: Files of any supported format; no folders.
            metadata: Metadata of each document.
            title: Title of a single file; None for the title in the file, or else its name.
            options: As for `insert`.
        """
        if title is not None and len(paths) != 1:
            raise InvalidRequest(f"title is for one file (got {len(paths)}).", field="title")
        about = {**(metadata or {}), **({} if title is None else {"title": title})}
        documents = [await asyncio.to_thread(document_of_file, Path(path), about) for path in paths]
        return await self.insert(vector_db_id, documents, **options)

    async def documents(self, vector_db_id: str) -> list[DocumentCount]:
        """Return the documents of a vector DB with their numbers of chunks, by id."""
        index = await self._stack.index(name_of(vector_db_id))
        return [each async for page in all_documents(index) for each in page]

    async def document(self, vector_db_id: str, document_id: str) -> StoredDocument:
        """Return a document's metadata and chunks; raises NotFound for an unknown one."""
        index = await self._stack.index(name_of(vector_db_id))
        found = await read_document(index, document_id, WHOLE)
        if found is None:
            raise unknown_document(vector_db_id, document_id, LISTED)
        return found

    async def delete_document(self, vector_db_id: str, document_id: str) -> int:
        """Delete a document in one write and return its number of chunks; NotFound if unknown."""
        deleted = await delete_document(await self._stack.index(name_of(vector_db_id)), document_id)
        if not deleted:
            raise unknown_document(vector_db_id, document_id, LISTED)
        return deleted

    async def add_file(self, path: str | Path, *, purpose: str = "assistants") -> StoredFile:
        """Store a local file among the uploaded files, and return its record.

        To search in a file, use `insert_files`, or attach it to a vector store of the server.
        """
        data = await asyncio.to_thread(content_of, Path(path))

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
        return b"".join([piece async for piece in await store.read(await store.get(file_id))])

    async def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file; documents that were read from it stay."""
        await self._stack.files.delete((await self.file(file_id)).file_id)

    async def query(
        self, question: str, vector_db_id: str, *, k: int = 5, **options: Any
    ) -> QueryChunksResponse:
        """Return the k best chunks, best first.

        Args:
            question: The question in words, embedded if the mode needs it. If empty, `filters` or
                `order_by` are required, and all passing chunks are returned in that order with
                score 1.
            vector_db_id: The vector DB to search.
            k: Maximum number of hits, 1 to 1000.
            options: Fields of `RetrievalOptions`, such as `mode`, `filters` or `score_threshold`.
        """
        name, text = name_of(vector_db_id), question_of(question)
        return await self._tool.retrieval.search(name, text, k=k, **options)

    async def ask(
        self, question: str, *vector_db_ids: str, max_tokens: int = 4096, **options: Any
    ) -> RAGQueryResult:
        """Return the context that answers a question; its `text` has at most `max_tokens` tokens.

        Args:
            question: The question in words; may be empty as in `query`.
            vector_db_ids: The vector DBs to search; their hits are ranked together.
            max_tokens: Budget of the whole text, frame included.
            options: Fields of `RAGQueryConfig`, such as `max_chunks`, `citations` or `mode`.
        """
        names = [name_of(each) for each in vector_db_ids]
        return await self._tool.query(
            question_of(question), names, context_options(max_tokens, options)
        )

    async def answer(
        self,
        question: str,
        *vector_db_ids: str,
        model: str | None = None,
        max_tokens: int = 4096,
        **options: Any,
    ) -> Answer:
        """Return an answer to a question, with the sources that it cites.

        Args:
            question: The question in words.
            vector_db_ids: The vector DBs to search.
            model: A configured language model; None for `answers.model`, or else the first one.
                Without configured models this is `extractive`, which quotes the sources.
            max_tokens: Budget of the context that the model reads.
            options: Fields of `RAGQueryConfig`, such as `max_chunks` or `mode`.
        """
        ask = Ask(
            model=model or self._stack.answering_model(),
            messages=[{"role": "user", "content": question_of(question)}],
            vector_db_ids=[name_of(each) for each in vector_db_ids],
            config=context_options(max_tokens, options),
            search="first",
        )
        return await Answerer(self._tool, self._stack).whole(ask)


class SyncCorral:
    """`Corral` for code without an event loop, which runs in a separate thread.

    See `open_sync`. A script may exit without `close`; acknowledged writes are stored.
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
        """Delete an uploaded file; documents that were read from it stay."""
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

    def answer(
        self,
        question: str,
        *vector_db_ids: str,
        model: str | None = None,
        max_tokens: int = 4096,
        **options: Any,
    ) -> Answer:
        """Return an answer to a question; see `Corral.answer`."""
        chosen: dict[str, Any] = {"model": model, "max_tokens": max_tokens, **options}
        return self._run(self._herd.answer(question, *vector_db_ids, **chosen))
