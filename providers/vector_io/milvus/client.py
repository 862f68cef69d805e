"""The connection to Milvus, opened on demand; its errors; and one collection."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from pymilvus import MilvusClient, MilvusException

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest, ProviderError, ProviderTimeout, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import ThreadPool
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.batches import batches, runs
from corral.providers.vector_io.kit.clients import SharedClient
from corral.providers.vector_io.kit.refusals import data_is_gone, refuse_newer
from corral.providers.vector_io.kit.retries import check_before_request
from corral.providers.vector_io.kit.undo import undone_on_failure
from corral.providers.vector_io.milvus.filters import CHUNKS, Kind, digest, quoted
from corral.providers.vector_io.milvus.records import (
    LAYOUT,
    MOST_ROWS,
    Entry,
    Layout,
    Row,
    RowMaker,
    VectorIndex,
    Writers,
    decoded,
    entry,
    fields,
    indexes,
    lexemes,
    part_keys,
    size_of,
    stored_dimension,
)

_BATCH = 500  # Rows per request, since each may have 64 KiB.
# Milvus Lite searches unflushed rows one by one and term by term, about 1.5 us each.
UNFLUSHED_TERMS = 20_000
_TERMS_OF_A_ROW = 20  # Size of a row without its terms.
_ABOUT = "about"
_DEAD = f"kind == {Kind.DEAD:d}"

_CONNECT_FAILED = 2
_RATE_LIMIT = 8
_COLLECTION_NOT_FOUND = 100
_COLLECTION_NOT_LOADED = 101
_STATUS_ERRORS: dict[grpc.StatusCode, tuple[type[ProviderError], str]] = {
    grpc.StatusCode.UNAVAILABLE: (Unavailable, "Milvus cannot be reached"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (ProviderTimeout, "Milvus did not answer in time"),
    grpc.StatusCode.UNAUTHENTICATED: (ProviderError, "Milvus refused the token"),
    grpc.StatusCode.PERMISSION_DENIED: (ProviderError, "Milvus refused permission"),
}

# If a request fails, the driver logs all of it, including a user's text.
for _name in ("pymilvus", "pymilvus.milvus_client", "pymilvus.bulk_writer", "milvus_lite"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Connection:
    """One connection to Milvus, shared by the indexes of a provider. Safe to use from threads.

    The first call opens it. It closes when its last user leaves, and an embedded Milvus releases
    its folder.

    Args:
        connect: Returns a client.
        timeout_seconds: Time limit of one call; the driver retries connection errors within it.
        embedded: True if Milvus Lite runs in this process.

    Attributes:
        threads: The threads that run its calls.
        client: The shared client of the driver.
    """

    def __init__(
        self,
        provider_id: str,
        connect: Callable[[], MilvusClient],
        *,
        timeout_seconds: float,
        embedded: bool,
    ) -> None:
        self.provider_id = provider_id
        self.embedded = embedded
        self._timeout = timeout_seconds
        several = ThreadPool(provider_id, timeout_seconds)
        # A second thread would only wait for the interpreter's lock.
        self.threads = ThreadPool(provider_id, None, max_threads=1) if embedded else several
        self.client = SharedClient(provider_id, connect, MilvusClient.close)

    def exclusive(self) -> AbstractContextManager[Any]:
        """Return a context in which no other thread uses an embedded Milvus.

        This costs no time, because Milvus Lite is Python code under the interpreter's lock. A
        search during a flush would miss the rows being written to disk.
        """
        return self.client.lock if self.embedded else nullcontext()

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client with the timeout, and translate its errors.

        A collection that is not loaded, as after a restart of the server, is loaded.
        """
        check_before_request()
        with self.client.calling(), self.exclusive(), self._errors():
            function = getattr(self.client.connected(), method)
            try:
                return function(*arguments, timeout=self._timeout, **options)
            except MilvusException as error:
                if error.code != _COLLECTION_NOT_LOADED:
                    raise
                self.client.connected().load_collection(arguments[0], timeout=self._timeout)
                return function(*arguments, timeout=self._timeout, **options)

    def call_once(self, method: str, *arguments: Any) -> Any:
        """Call a method as a temporary user of the client, for when no index may be open."""
        with self.client.using():
            return self.call(method, *arguments)

    def scan(
        self, collection: str, expression: str, fields: Sequence[str], step: int = MOST_ROWS
    ) -> Iterator[Any]:
        """Yield every row that passes, fetched in batches."""
        options = {"filter": expression, "output_fields": list(fields), "batch_size": step}
        with self.client.calling():
            iterator = self.call("query_iterator", collection, **options)
            try:
                while True:
                    with self.exclusive(), self._errors():
                        rows = iterator.next()
                    if not rows:
                        return
                    yield from rows
            finally:
                iterator.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the contract's errors; omit the driver's messages, which may contain data."""
        try:
            yield
        except grpc.FutureTimeoutError as error:
            raise Unavailable(f"{self.provider_id}: Milvus cannot be reached.") from error
        except grpc.RpcError as error:
            raise self._translated(error.code()) from error
        except MilvusException as error:
            raise self._translated(error.code) from error

    def _translated(self, code: Any) -> Exception:
        if code == _COLLECTION_NOT_FOUND:
            return data_is_gone(
                f"{self.provider_id}: the vector DB's collection is gone from Milvus."
            )
        if code == _CONNECT_FAILED:
            return Unavailable(f"{self.provider_id}: Milvus cannot be reached.")
        # The collection was loaded and is still missing: the server is starting.
        if code == _COLLECTION_NOT_LOADED:
            return Unavailable(f"{self.provider_id}: Milvus is loading the collection.")
        if code == _RATE_LIMIT:
            return Unavailable(f"{self.provider_id}: Milvus limits the rate of requests.")
        kind, message = _STATUS_ERRORS.get(code, (ProviderError, f"Milvus answered error {code}"))
        return kind(f"{self.provider_id}: {message}.")


# --- a collection ---------------------------------------------------------------------------------


class Collection:
    """One collection. Calls block. Safe to use from threads, but the caller must serialize writes.

    Args:
        vectors: The index of the embeddings, for a new collection.
        unflushed_terms: Maximum number of unflushed terms in Milvus Lite.

    Attributes:
        name: Its name in Milvus.
        writers: The processes that write to it; None for an embedded Milvus.
        is_lite: True if Milvus Lite answers, in this process or as a server: it cannot index
            arrays, so term keys are counted here, and flushes are requested here.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        vector_db: VectorDB,
        layout: Layout,
        vectors: VectorIndex,
        unflushed_terms: int = UNFLUSHED_TERMS,
    ) -> None:
        self._unflushed_terms = unflushed_terms
        self.connection, self.layout, self.vectors = connection, layout, vectors
        self.is_lite = connection.embedded
        self.maker = RowMaker(layout, stored_dimension(vector_db))
        self.name = name
        self._vector_db = vector_db
        self.writers = Writers(self._call, self.maker)
        self._unflushed = 0

    # --- the collection ----------------------------------------------------------------------

    def exists(self) -> bool:
        """Return True if the collection exists."""
        return bool(self._call("has_collection"))

    def make(self) -> None:
        """Create the collection."""
        schema = fields(self._vector_db, self.layout)
        self._call("create_collection", schema=schema, consistency_level="Strong")

    def load(self) -> None:
        """Make the collection searchable, as is necessary after each start of the server."""
        missing = indexes(self._vector_db, self.layout, self.vectors)
        for field in self._call("list_indexes"):
            missing.pop(field, None)
        if self.layout.arrays and missing:  # Always the case on a server that cannot create any.
            version = str(self.connection.call("get_server_version"))
            self.is_lite = version.startswith("milvus_lite")
        if self.is_lite:
            missing = {f: p for f, p in missing.items() if f not in ("attributes", "keys")}
        for parameters in missing.values():
            self._call("create_index", index_params=parameters, sync=False)
        self._call("load_collection")

    def drop(self) -> None:
        """Drop the collection with everything in it."""
        self._call("drop_collection")

    def tidy(self) -> None:
        """Delete rows that a killed process marked but did not delete."""
        self._delete_dead([row["pk"] for row in self._scan(_DEAD, ("pk",))])

    def analyzer_version(self) -> int:
        """Return the `ANALYZER_VERSION` of the stored terms; the current one if there are none.

        Raises:
            ConfigError: A newer Corral wrote the collection.
        """
        found = self._get([_ABOUT], ("payload",))
        about = json.loads(found[0]["payload"]) if found else {}
        refuse_newer(about.get("layout", 0), LAYOUT, self._vector_db.provider_id)
        return int(about.get("analyzer", ANALYZER_VERSION))

    def record_version(self, layout: int = LAYOUT, analyzer: int = ANALYZER_VERSION) -> None:
        """Record the layout of the rows."""
        about = json.dumps({"layout": layout, "analyzer": analyzer})
        self._upsert([self.maker.blank(_ABOUT, Kind.ABOUT, about)])

    # --- reading -----------------------------------------------------------------------------

    def nearest(
        self, vector: Any, expression: str, k: int, limit: int, output: Sequence[str]
    ) -> tuple[list[Any], bool]:
        """Return the nearest rows by embedding.

        A graph walk may not reach every row that passes. So if it finds too few, the passing rows
        are counted; usually there are no more.

        Returns:
            Up to `limit` rows, best first, and True if fewer than `k` were found but more pass.
        """
        first, *wider = self.vectors.efforts(limit, filtered=expression != CHUNKS)
        search = partial(self.search, "embedding", vector, expression, limit, output)
        hits = search(first)
        if self.vectors.kind != "HNSW" or len(hits) >= (limit if wider else k):
            return hits, False
        passing = self.count(expression)
        for effort in wider:
            if len(hits) < min(limit, passing):
                hits = search(effort)
        return hits, len(hits) < min(k, passing)

    def search(
        self,
        field: str,
        vector: NDArray[np.float32] | dict[int, float],
        expression: str,
        limit: int,
        output: Sequence[str],
        parameters: Mapping[str, Any],
    ) -> list[Any]:
        """Return the best rows by a vector field, best first."""
        found = self._call(
            "search",
            data=[vector],
            anns_field=field,
            filter=expression,
            limit=limit,
            output_fields=list(output),
            search_params={"params": dict(parameters)},
        )
        return list(found[0])

    def embeddings(self, expression: str) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield the ids and embeddings of the chunks that pass, in batches."""
        rows = self.connection.scan(self.name, expression, ("chunk_id", "embedding"), _BATCH)
        while some := list(islice(rows, _BATCH)):
            matrix = np.array([row["embedding"] for row in some], dtype=np.float32)
            yield [row["chunk_id"] for row in some], matrix

    def embeddings_of(self, pks: Sequence[str]) -> dict[str, list[float]]:
        """Return by chunk id the embeddings of the existing chunks of these primary keys."""
        rows = self._get(pks, ("chunk_id", "embedding", "kind"))
        return {row["chunk_id"]: row["embedding"] for row in rows if row["kind"] == Kind.CHUNK}

    def entries(self) -> Iterator[Entry]:
        """Yield the statistics entry of every chunk."""
        return self._entries(self._scan(CHUNKS, self._entry_fields))

    def entries_of(
        self, pks: Sequence[str], documents: AbstractSet[str] = frozenset()
    ) -> list[Entry]:
        """Return the entries of the chunks with these primary keys or of these documents."""
        rows = self._get(pks, (*self._entry_fields, "kind"))
        found = [row for row in rows if row["kind"] == Kind.CHUNK]
        for some in runs(sorted(map(digest, documents)), _BATCH):
            expression = f"{CHUNKS} and document in {quoted(some)}"
            found.extend(self._scan(expression, self._entry_fields))
        return list({one.pk: one for one in self._entries(iter(found))}.values())

    @property
    def _entry_fields(self) -> tuple[str, ...]:
        return ("pk", "parts", "length", "reference", *(("lexemes",) if self.is_lite else ()))

    def _entries(self, rows: Iterator[Any]) -> Iterator[Entry]:
        while some := list(islice(rows, _BATCH)):
            long = [row["pk"] for row in some if self.is_lite and not row["lexemes"]]
            texts = self.payloads_of(long) if long else {}
            for row in some:
                text = texts.get(row["pk"], "")
                yield entry(row, lexemes(row["lexemes"], text)[0] if self.is_lite else ())

    def chunks(self, pks: Sequence[str], *, with_embeddings: bool = False) -> list[Chunk]:
        """Return the existing chunks of these primary keys, in any order."""
        output = ("pk", "kind", "chunk_id", "payload", "parts")
        rows = self._get(pks, (*output, "embedding") if with_embeddings else output)
        return self._decoded([row for row in rows if row["kind"] == Kind.CHUNK])

    def chunks_passing(self, expression: str) -> Iterator[Chunk]:
        """Yield the chunks that pass an expression."""
        output = ("pk", "chunk_id", "payload", "parts")
        found = self.connection.scan(self.name, expression, output, _BATCH)
        while rows := list(islice(found, _BATCH)):
            yield from self._decoded(rows)

    def payloads(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return complete payloads by primary key, without rows that are being replaced."""
        pks = [pk for row in rows for pk in part_keys(row["pk"], row["parts"])]
        parts = {row["pk"]: row["payload"] for row in self._get(pks, ("pk", "payload"))}
        whole = {}
        for row in rows:
            wanted = part_keys(row["pk"], row["parts"])
            if all(pk in parts for pk in wanted):
                whole[row["pk"]] = row["payload"] + "".join(parts[pk] for pk in wanted)
        return whole

    def payloads_of(self, pks: Sequence[str]) -> dict[str, str]:
        """Return the complete payloads of the rows with these primary keys."""
        return self.payloads(self._get(pks, ("pk", "payload", "parts")))

    def keys(self) -> list[str]:
        """Return the primary keys of all chunks."""
        return [row["pk"] for row in self._scan(CHUNKS, ("pk",))]

    def chunk_ids(self) -> Iterator[str]:
        """Yield the ids of all chunks, unordered."""
        return (row["chunk_id"] for row in self._scan(CHUNKS, ("chunk_id",)))

    def count(self, expression: str) -> int:
        """Return the number of rows that pass."""
        found = self._call("query", filter=expression, output_fields=["count(*)"])
        return int(found[0]["count(*)"])

    # --- writing -----------------------------------------------------------------------------

    def write(self, rows: Sequence[Row], gone: Sequence[str]) -> None:
        """Write rows and remove others, in one request if they fit.

        The same request marks the rows to remove, so readers never see two versions or none.

        Args:
            rows: New rows; they replace rows with the same primary key.
            gone: Primary keys of the rows to delete.

        Raises:
            InvalidRequest: The write exceeds one request to an embedded Milvus.
        """
        marked = [*rows, *(self.maker.blank(pk, Kind.DEAD) for pk in gone)] if rows else []
        if self.layout.arrays:
            marked = marked or [self.maker.blank(pk, Kind.DEAD) for pk in gone]
            marked.append(self.writers.announcement())
        requests = list(self._requests(marked))
        if len(requests) > 1 and self.connection.embedded:
            raise InvalidRequest(
                f"The request has more than {self.layout.request_bytes // 2**20} MiB.",
                hint="Send fewer chunks at once.",
                field="chunks",
            )
        if len(requests) > 1:
            self._upsert_all(requests, [row["pk"] for row in marked])
        elif requests:
            self._upsert(requests[0])
        self._delete_dead(gone)
        self._flush(marked)

    def _upsert_all(self, requests: Sequence[list[Row]], pks: Sequence[str]) -> None:
        """Send several requests; if one fails, restore the rows that they replaced."""
        before = self._get(pks, ("*",))
        put_back = [partial(self._upsert, request) for request in self._requests(before)]
        added = sorted(set(pks) - {row["pk"] for row in before})
        with undone_on_failure(put_back, partial(self._delete, added)):
            for request in requests:
                self._upsert(request)

    def _requests(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Row]]:
        """Split rows into requests, with parts before the chunks that need them."""
        ordered = sorted(rows, key=lambda one: one["kind"] != Kind.PART)
        return batches(map(dict, ordered), size_of, len(ordered), self.layout.request_bytes)

    def _delete_dead(self, pks: Sequence[str]) -> None:
        """Delete marked rows, except those that another client has rewritten since."""
        if self.connection.embedded:
            self._delete(pks)
            return
        for some in runs(pks, 10 * _BATCH):
            self._call("delete", filter=f"{_DEAD} and pk in {quoted(some)}")

    def _upsert(self, rows: Sequence[Row]) -> None:
        # Milvus Lite's upsert keeps the fields of an old row that the new one lacks, such as bounds
        # of metadata that a chunk no longer has. Its insert replaces the whole row.
        self._call("insert" if self.is_lite else "upsert", data=rows)

    def _delete(self, pks: Sequence[str]) -> None:
        if pks:
            self._call("delete", ids=list(pks))

    def _flush(self, rows: Iterable[Row]) -> None:
        if not self.is_lite:  # A Milvus server decides by itself when to flush.
            return
        self._unflushed += sum(_TERMS_OF_A_ROW + len(row["terms"]) for row in rows)
        if self._unflushed >= self._unflushed_terms:
            self._call("flush")
            self._unflushed = 0

    # --- requests ----------------------------------------------------------------------------

    def _call(self, method: str, **options: Any) -> Any:
        return self.connection.call(method, self.name, **options)

    def _scan(self, expression: str, output: Sequence[str]) -> Iterator[Any]:
        return self.connection.scan(self.name, expression, output)

    def _get(self, pks: Sequence[str], output: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        for some in runs(pks, _BATCH):
            found.extend(self._call("get", ids=list(some), output_fields=list(output)))
        return found

    def _decoded(self, rows: Sequence[Mapping[str, Any]]) -> list[Chunk]:
        dimension = self._vector_db.embedding_dimension
        whole = self.payloads(rows)
        return [decoded(row, whole[row["pk"]], dimension) for row in rows if row["pk"] in whole]
