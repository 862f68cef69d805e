"""Fixtures of the standard tests: open, call and drop indexes synchronously."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.chunks import Chunk
from corral.api.documents import DocumentPage, DocumentQuery
from corral.api.embedding_index import EmbeddingIndex
from corral.api.hits import Leg, QueryChunksResponse, TermStatistics
from corral.api.legs import IndexQuery
from corral.api.principal import Principal
from corral.api.testing.processes import SecondProcess, second_process
from corral.api.vector_dbs import SearchMode, VectorDB

T = TypeVar("T")

PLAIN: dict[str, Any] = {"language": "simple", "field_weights": {"content": 1.0}}
"""Settings that make a text's terms its lower-case words, for computing BM25 by hand."""


def chunk(chunk_id: str, content: str = "", /, **metadata: Any) -> Chunk:
    """Return a chunk; by default its text contains its id."""
    return Chunk(chunk_id=chunk_id, content=content or f"text of {chunk_id}", metadata=metadata)


def registration(identifier: str, *, dimension: int = 2, **settings: Any) -> VectorDB:
    """Return a vector DB with the tests' defaults."""
    return VectorDB.model_validate(
        {
            "identifier": identifier,
            "provider_id": "conformance",
            "provider_resource_id": identifier,
            "embedding_model": "none",
            "embedding_dimension": dimension,
            "created_at": 1.0,
            **settings,
        }
    )


def version_of(document: str, version: int, size: int, dimension: int) -> list[Chunk]:
    """Return a version of a document: `size` chunks with the version in their text.

    The ids differ between versions, so that tests can detect leftover chunks.
    """
    return [
        Chunk(
            content=f"version{version} part{part}",
            chunk_id=f"{document}-{version}-{part}",
            metadata={"document_id": document, "version": version},
            embedding=[1.0, *[float(part)] * (dimension - 1)],
        )
        for part in range(size)
    ]


def ids(response: QueryChunksResponse) -> list[str]:
    """Return the chunk ids of an answer, best first."""
    return [hit.chunk.chunk_id for hit in response.hits]


def scores(response: QueryChunksResponse) -> dict[str, float]:
    """Return the score of each chunk in an answer."""
    return {hit.chunk.chunk_id: hit.score for hit in response.hits}


def raw_scores(response: QueryChunksResponse) -> dict[str, float]:
    """Return the raw score of each chunk in the answer of a single leg."""
    return {
        hit.chunk.chunk_id: leg.raw_score
        for hit in response.hits
        for leg in hit.explanation.legs.values()
    }


class Handle:
    """One index, called synchronously.

    Args:
        index: The provider's index.
        run: Runs a coroutine of the index to completion.
    """

    def __init__(
        self, index: EmbeddingIndex, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self.index = index
        self._run = run

    def scoped_to(self, principal: Principal) -> Handle:
        """Return the index as a principal sees it."""
        return Handle(self.index.scoped_to(principal), self._run)

    def set_acl(self, chunk_ids: Sequence[str], acl: Sequence[str] | None) -> int:
        """Give chunks another acl."""
        changed: int = self._run(self.index.set_acl(chunk_ids, acl))
        return changed

    @property
    def vector_db(self) -> VectorDB:
        """The registration."""
        return self.index.vector_db

    def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: Any = None,
        *,
        replace_documents: Collection[str] = (),
    ) -> None:
        """Add chunks; without embeddings, all get the same embedding."""
        if embeddings is None:
            embeddings = [[1.0] + [0.0] * (self.vector_db.embedding_dimension - 1)] * len(chunks)
        self._run(self.index.add_chunks(chunks, embeddings, replace_documents=replace_documents))

    def add_vectors(self, vectors: Mapping[str, Any]) -> None:
        """Add a chunk for each id and embedding."""
        self.add([chunk(chunk_id) for chunk_id in vectors], list(vectors.values()))

    def add_texts(self, texts: Mapping[str, str]) -> None:
        """Add a chunk for each id and text, all with the same embedding."""
        self.add([chunk(chunk_id, text) for chunk_id, text in texts.items()])

    def vector(self, embedding: ArrayLike, k: int = 10, **options: Any) -> QueryChunksResponse:
        """Search by embedding."""
        return self._query(embedding=embedding, k=k, mode="vector", **options)

    def keyword(self, text: str, k: int = 10, **options: Any) -> QueryChunksResponse:
        """Search by words."""
        return self._query(query_string=text, k=k, mode="keyword", **options)

    def hybrid(
        self, embedding: ArrayLike, text: str, k: int = 10, **options: Any
    ) -> QueryChunksResponse:
        """Search by both."""
        return self._query(embedding=embedding, query_string=text, k=k, mode="hybrid", **options)

    def search(
        self, mode: str, embedding: ArrayLike, text: str, k: int = 10, **options: Any
    ) -> QueryChunksResponse:
        """Search in any mode, with the arguments that the mode needs."""
        return self._query(embedding=embedding, query_string=text, k=k, mode=mode, **options)

    def term_statistics(self, text: str) -> TermStatistics:
        """Return the BM25 statistics for a query text."""
        statistics: TermStatistics = self._run(self.index.term_statistics(self._words(text, 10)))
        return statistics

    def keyword_leg(self, text: str, statistics: TermStatistics, k: int = 10) -> dict[str, float]:
        """Return the raw keyword scores by chunk id, ranked by these statistics, best first."""
        leg: Leg = self._run(self.index.leg("keyword", self._words(text, k), k, statistics))
        return {one.chunk_id: one.raw_score for one in leg.candidates}

    def _words(self, text: str, k: int) -> IndexQuery:
        return IndexQuery(
            mode=SearchMode.KEYWORD,
            k=k,
            threshold=0.0,
            text=text,
            ranker=self.vector_db.ranker,
            filters=None,
            vector=None,
            fuzzy=False,
            include_embeddings=False,
        )

    def _query(self, **arguments: Any) -> QueryChunksResponse:
        response: QueryChunksResponse = self._run(self.index.query(**arguments))
        return response

    def documents(self, after: str = "", limit: int = 1000) -> dict[str, int]:
        """Return the number of chunks by document."""
        documents = self._run(self.index.documents(after, limit))
        return {document.document_id: document.chunks for document in documents}

    def document_page(self, query: DocumentQuery) -> DocumentPage:
        """Return a page of documents."""
        page: DocumentPage = self._run(self.index.document_page(query))
        return page

    def chunk_ids_of(self, document_id: str) -> list[str]:
        """Return the ids of a document's chunks."""
        chunk_ids: list[str] = self._run(self.index.document_chunk_ids(document_id))
        return chunk_ids

    def get(self, *chunk_ids: str, include_embeddings: bool = False) -> list[Chunk]:
        """Return the stored chunks of these ids."""
        chunks: list[Chunk] = self._run(
            self.index.get_chunks(chunk_ids, include_embeddings=include_embeddings)
        )
        return chunks

    def embeddings(self, *chunk_ids: str) -> NDArray[np.float64]:
        """Return the stored embeddings of these ids, shape (n, dimension)."""
        chunks = self.get(*chunk_ids, include_embeddings=True)
        return np.array([one.embedding for one in chunks], dtype=np.float64)

    def remove(self, *chunk_ids: str) -> None:
        """Delete chunks."""
        self._run(self.index.delete_chunks(chunk_ids))

    def count(self) -> int:
        """Return the number of chunks."""
        number: int = self._run(self.index.count())
        return number

    def chunk_ids(self, after: str = "", limit: int = 1000, filters: Any = None) -> list[str]:
        """Return the first stored ids that follow an id."""
        page: list[str] = self._run(self.index.chunk_ids(after, limit, filters=filters))
        return page


class Opener(Protocol):
    """The methods of a suite that `Indexes` uses; see `Suite`."""

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Return the index of a vector DB; create it if it does not exist."""

    def registration(self, vector_db: VectorDB) -> VectorDB:
        """Return the vector DB to register in place of a test's vector DB."""

    async def close(self) -> None:
        """Release resources of `open_index` other than the indexes."""


class Indexes:
    """The indexes of one test. All live in one event loop and one folder.

    Args:
        suite: The suite; its `open_index` opens the indexes.
        folder: The test's own folder.
        runner: The runner of the event loop.
    """

    def __init__(self, suite: Opener, folder: Path, runner: asyncio.Runner) -> None:
        self._suite, self._folder, self._runner = suite, folder, runner
        self._open: dict[tuple[str, str], Handle] = {}
        self._processes: list[SecondProcess] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the indexes.

        `Runner.run` would replace the handler of Ctrl-C around each call, and would render the
        whole answer as a string (Python 3.11).
        """
        return self._runner.get_loop().run_until_complete(work)

    def together(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines concurrently and return their results in order."""

        async def gather() -> list[T]:
            return await asyncio.gather(*work)

        return self.run(gather())

    def open(self, identifier: str = "db", *, dimension: int = 2, **settings: Any) -> Handle:
        """Register a vector DB and open its index.

        Args:
            identifier: An id that is new in this test.
            dimension: Length of an embedding.
            settings: `metric`, `language` and other fields of a registration.
        """
        vector_db = registration(identifier, dimension=dimension, **settings)
        return self._opened(self._suite.registration(vector_db))

    def restart(self, handle: Handle) -> Handle:
        """Close an index and open it again, as a restart of the server does."""
        self.run(handle.index.close())
        return self._opened(handle.vector_db)

    def drop(self, handle: Handle) -> None:
        """Delete an index with everything in it."""
        self.run(self.dropped(handle))

    async def dropped(self, handle: Handle) -> None:
        """Delete an index with everything in it, concurrently with other tasks."""
        await handle.index.delete()
        del self._open[_key(handle.vector_db)]

    def recreate(self, handle: Handle) -> Handle:
        """Create the index of a registration again after it was dropped."""
        return self._opened(handle.vector_db)

    def drop_all(self) -> None:
        """End the test's remaining processes and delete its indexes, continuing after errors."""
        with ExitStack() as stack:
            stack.callback(lambda: self.run(self._suite.close()))
            for handle in self._open.values():
                stack.callback(self._delete, handle)
            for process in self._processes:
                process.stop_work()

    def _delete(self, handle: Handle) -> None:
        self.run(handle.index.delete())

    def _opened(self, vector_db: VectorDB) -> Handle:
        handle = Handle(self.run(self._suite.open_index(vector_db, self._folder)), self.run)
        self._open[_key(vector_db)] = handle
        return handle

    # --- other processes ---------------------------------------------------------------------

    def in_another_process(self, handle: Handle, *steps: tuple[str, Any]) -> list[Any]:
        """Open the same index in another process, run steps there and return their results.

        Args:
            handle: An open index; it stays open in this process.
            steps: (name, argument) of each step; see `corral.api.testing.second_process`.
        """
        return self.begin_in_another_process(handle, *steps).rest()

    def begin_in_another_process(self, handle: Handle, *steps: tuple[str, Any]) -> SecondProcess:
        """Start the steps as `in_another_process` does, and return the running process."""
        process = second_process(type(self._suite))
        self._processes.append(process)
        process.begin(handle.vector_db, self._folder, steps)
        return process


def _key(vector_db: VectorDB) -> tuple[str, str]:
    return vector_db.identifier, vector_db.installation
