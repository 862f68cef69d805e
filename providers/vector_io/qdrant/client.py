"""A client for a Qdrant server: error translation, and reads of one collection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from grpc import RpcError, StatusCode
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from corral.api.errors import (
    ConfigError,
    CorralError,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.channels import channel_options
from corral.providers.vector_io.kit.refusals import data_is_gone
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.filters import all_but
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    SPARSE,
    FoundPoint,
    Json,
    PointId,
    unpacked,
)

T = TypeVar("T")

OLDEST_VERSION = (1, 12)
"""The first release with facets."""

_FIRST_PAUSE_SECONDS = 0.1
# For responses above 1 KiB, a server compresses in another thread and sends the headers first; the
# body then waits 40 ms for the delayed TCP acknowledgment of the headers.
_REST_HEADERS = {"Accept-Encoding": "identity"}
_MISSING = (404, StatusCode.NOT_FOUND)
_REFUSED = (401, 403, StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED)
_LIMIT = ". Help: "  # Strict mode's phrase for a remedy; status 403 before 1.14.1, then 400.

READ_POINTS = 1_000
READ_NUMBERS = 100_000
"""Maximum size of a response with vectors, which the client parses in one step on the event loop.
"""

SCROLL_BATCH = 5_000
FACET_VALUES = 10_000
COUNTS_AT_ONCE = 8

UNLIMITED = 2**31
_AT_REST = (models.CollectionStatus.GREEN, models.CollectionStatus.GREY)
"""Statuses in which no segment is being rewritten."""

FAILURES = (
    ResponseHandlingException,
    UnexpectedResponse,
    ResourceExhaustedResponse,
    RpcError,
)
"""Errors of qdrant-client for a failed request."""


class Server:
    """A client with Corral's errors and retries; a provider's collections share it.

    Args:
        client: The driver, over REST or gRPC.
    """

    def __init__(self, provider_id: str, client: AsyncQdrantClient, config: QdrantConfig) -> None:
        self.client = client
        self.config = config
        self._provider_id = provider_id
        self._is_new_enough = False

    async def call(
        self,
        request: Callable[[], Awaitable[T]],
        *,
        collection: str = "",
        configures: bool = False,
    ) -> T:
        """Send a request; retry if the server cannot be reached, because requests are idempotent.

        The first call checks the server's version.

        Args:
            collection: The request's collection; after a 404, its existence is checked.
            configures: True if the request has only settings, so that errors may quote the server.

        Raises:
            Unavailable, ProviderTimeout, NotFound, ProviderError: See `translated`.
            ConfigError: The server is too old.
        """
        if not self._is_new_enough:
            await self._check_version()
        try:
            return await self._send(request)
        except FAILURES as error:
            if collection and _status(error) in _MISSING:
                raise await self._missing(collection) from error
            raise translated(error, self._provider_id, configures=configures) from error

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        attempts = self.config.retries + 1
        return await retried_async(request, _unreachable, attempts, _FIRST_PAUSE_SECONDS)

    async def _check_version(self) -> None:
        """Refuse a server that is too old; a proxy may hide its version."""
        try:
            found = (await self._send(self.client.info)).version
        except FAILURES as error:
            meaning = translated(error, self._provider_id)
            if meaning.retryable:
                raise meaning from error
            found = ""
        parts = re.match(r"v?([0-9]+)\.([0-9]+)", found)
        if parts and (int(parts[1]), int(parts[2])) < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise ConfigError(
                f"{self._provider_id}: the Qdrant server has version {found};"
                f" Corral needs {oldest} or newer.",
                hint="Upgrade the server.",
            )
        self._is_new_enough = True

    async def _missing(self, collection: str) -> CorralError:
        """Return the error for a 404: NotFound only if the collection does not exist."""
        try:
            gone = not await self._send(lambda: self.client.collection_exists(collection))
        except FAILURES as error:
            if _status(error) not in _MISSING:
                return translated(error, self._provider_id)
            gone = False
        if gone:
            return data_is_gone(f"{self._provider_id}: the collection of this vector DB is gone.")
        return ProviderError(
            f"{self._provider_id}: {self.config.url} answered 404, but did not say that the "
            "collection is gone.",
            hint="Check that url is a Qdrant server, and that proxies forward all its routes.",
        )


def make_client(config: QdrantConfig) -> AsyncQdrantClient:
    """Return a client with a connection pool; it connects at the first request."""
    return AsyncQdrantClient(
        url=config.url,
        port=None,
        grpc_port=config.grpc_port,
        prefer_grpc=config.transport == "grpc",
        api_key=config.api_key.get_secret_value() if config.api_key else None,
        timeout=config.timeout_seconds,
        check_compatibility=False,  # it would query the server now, which may be down
        limits=httpx.Limits(max_connections=config.max_connections),
        grpc_options=channel_options(config.timeout_seconds),
        metadata=dict(_REST_HEADERS),
        # Loading certificates takes 30 ms, and plain http needs none.
        verify=urlsplit(config.url).scheme == "https",
    )


def translated(error: Exception, provider_id: str, *, configures: bool = False) -> CorralError:
    """Return Corral's error for one of `FAILURES`.

    Their texts may quote data and are dropped, except for requests that only configure and for
    messages about a limit of strict mode.
    """
    status = _status(error)
    if _unreachable(error):
        return Unavailable(f"{provider_id}: the Qdrant server cannot be reached.")
    if status in (408, 504, StatusCode.DEADLINE_EXCEEDED) or _timed_out(error):
        return ProviderTimeout(f"{provider_id}: the Qdrant server did not answer in time.")
    if status in (429, 502, 503, StatusCode.RESOURCE_EXHAUSTED):
        return Unavailable(f"{provider_id}: the Qdrant server is overloaded.", hint="Try again.")
    words = _words(error)
    is_limit = _LIMIT in words
    says = f" It says: {words}" if words and (configures or is_limit) else ""
    if status in _REFUSED and not is_limit:
        return ProviderError(
            f"{provider_id}: the Qdrant server refuses access.{says}", hint="Check api_key."
        )
    shown = getattr(status, "name", status) or type(error).__name__
    return ProviderError(
        f"{provider_id}: the Qdrant server answered with an error ({shown}).{says}"
    )


def _words(error: Exception) -> str:
    """Return the beginning of the server's error message; empty if there is none."""
    text: Any = ""
    if isinstance(error, UnexpectedResponse):
        with suppress(ValueError, KeyError, TypeError):  # a proxy sends other content
            text = error.structured()["status"]["error"]
    elif isinstance(error, RpcError):
        text = error.details()
    return " ".join(text.split())[:500] if isinstance(text, str) else ""


def _status(error: Exception) -> Any:
    """Return the HTTP or gRPC status of an error; None if it has none."""
    if isinstance(error, UnexpectedResponse):
        return error.status_code
    if isinstance(error, ResourceExhaustedResponse):
        return 429
    return error.code() if isinstance(error, RpcError) else None


def _unreachable(error: BaseException) -> bool:
    """Return True if the connection failed or broke."""
    if isinstance(error, ResponseHandlingException):
        source = error.source
        timed_out = isinstance(source, httpx.TimeoutException)
        connecting = isinstance(source, httpx.ConnectTimeout)
        return isinstance(source, httpx.TransportError) and (connecting or not timed_out)
    return isinstance(error, RpcError) and error.code() is StatusCode.UNAVAILABLE


def _timed_out(error: Exception) -> bool:
    return isinstance(error, ResponseHandlingException) and isinstance(
        error.source, httpx.TimeoutException
    )


# --- reading a collection -------------------------------------------------------------------------


class ServerReads:
    """Reads a collection within the limits of strict mode; filters are Qdrant's JSON objects."""

    def __init__(self, vector_db: VectorDB, name: str, server: Server) -> None:
        self._vector_db = vector_db
        self._name = name
        self._server = server
        self._client = server.client
        self._limits = models.StrictModeConfigOutput()  # as of the latest `_info`
        self._rewriting = False  # time of the last request by `counts`

    async def _info(self) -> models.CollectionInfo:
        """Return the server's description of the collection, and record its limits."""
        info = await self._call(self._client.get_collection)
        strict = info.config.strict_mode_config
        self._limits = strict if strict and strict.enabled else models.StrictModeConfigOutput()
        return info

    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the nearest dense vectors, best first."""
        config = self._server.config
        width = min(max(config.hnsw_ef, limit), self._limits.search_max_hnsw_ef or UNLIMITED)
        found = await self._call(
            self._client.query_points,
            query=list(embedding),
            using=DENSE,
            limit=limit,
            query_filter=_filter(filter_),
            search_params=models.SearchParams(exact=config.exact, hnsw_ef=width),
            with_payload=list(fields),
        )
        return [_found(point) for point in found.points]

    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the largest inner products, best first."""
        found = await self._call(
            self._client.query_points,
            query=models.SparseVector(indices=sparse[0], values=sparse[1]),
            using=SPARSE,
            limit=limit,
            query_filter=_filter(filter_),
            with_payload=list(fields),
        )
        return [_found(point) for point in found.points]

    async def fetch(
        self, ids: Sequence[PointId], fields: Sequence[str], dense: bool
    ) -> list[FoundPoint]:
        """Return the existing points of these ids."""
        vectors = [DENSE] if dense else False
        found = await self._retrieve(ids, list(fields), vectors)
        return [_found(record) for record in found]

    async def _retrieve(
        self, ids: Sequence[PointId], fields: list[str] | bool, vectors: list[str] | bool
    ) -> list[models.Record]:
        found: list[models.Record] = []
        size = self._whole_points if vectors else READ_POINTS
        for some in runs(ids, size):
            found += await self._call(
                self._client.retrieve,
                ids=list(some),
                with_payload=fields,
                with_vectors=vectors,
            )
        return found

    @property
    def _whole_points(self) -> int:
        """Number of points with vectors in one read."""
        return max(1, min(READ_POINTS, READ_NUMBERS // self._vector_db.embedding_dimension))

    async def scroll(self, filter_: Json, limit: int) -> list[FoundPoint]:
        """Return a page of complete points that pass."""
        records, _ = await self._call(
            self._client.scroll,
            scroll_filter=_filter(filter_),
            limit=min(limit, self._whole_points, self._page),
            with_payload=True,
            with_vectors=[DENSE],
        )
        return [_found(record) for record in records]

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids after an id. Qdrant cannot sort strings, so all are read."""
        first: list[str] = []
        async for records in self._pages(None, ["chunk_id"]):
            ids = ((record.payload or {})["chunk_id"] for record in records)
            first = sorted(chain(first, (i for i in ids if i > after)))[:limit]
        return first

    @property
    def _page(self) -> int:
        """Number of points without vectors in one read."""
        return min(SCROLL_BATCH, self._limits.max_query_limit or UNLIMITED)

    async def count(self, filter_: Json | None = None) -> int:
        """Return the number of points that pass."""
        return await self._counted(filter_, exact=self._limits.search_allow_exact is not False)

    async def counts(self, filters: Sequence[Json]) -> list[int]:
        """Return the number of points that pass, for each filter of one condition.

        An index stores the number of points per value, so an approximate count is accurate and
        costs nothing. While a segment is rewritten, the server only estimates its deleted points;
        then exact counts are requested if strict mode allows them.
        """
        found: list[int] | None = None
        if self._rewriting:
            info = await self._info()
        else:
            info, found = await asyncio.gather(self._info(), self._count_all(filters, exact=False))
        self._rewriting = info.status not in _AT_REST
        exact = self._rewriting and self._limits.search_allow_exact is not False
        if found is None or exact:
            found = await self._count_all(filters, exact=exact)
        return found

    async def _count_all(self, filters: Sequence[Json], *, exact: bool) -> list[int]:
        found: list[int] = []
        for some in runs(filters, COUNTS_AT_ONCE):
            found += await asyncio.gather(*(self._counted(one, exact=exact) for one in some))
        return found

    async def _counted(self, filter_: Json | None, *, exact: bool) -> int:
        found = await self._call(self._client.count, count_filter=_filter(filter_), exact=exact)
        return found.count

    async def facet(self, name: str) -> Mapping[int, int]:
        """Return the number of points by value of a field, read from its index.

        An exact facet would visit every point for every value.
        """
        found: dict[int, int] = {}
        limit = min(FACET_VALUES, self._limits.max_query_limit or UNLIMITED)
        while True:
            answer = await self._call(
                self._client.facet,
                key=name,
                limit=limit,
                exact=False,
                facet_filter=_filter(all_but(name, list(found))),
            )
            found |= {int(hit.value): hit.count for hit in answer.hits}
            if len(answer.hits) < limit:
                return found

    async def _passing(self, filter_: Json) -> list[str]:
        """Return the ids of the points that pass."""
        pages = self._pages(filter_, False)
        return [str(record.id) async for records in pages for record in records]

    async def _pages(
        self, filter_: Json | None, fields: list[str] | bool
    ) -> AsyncIterator[list[models.Record]]:
        """Yield the points that pass, without their vectors, a page at a time."""
        offset: Any = None
        while True:
            records, offset = await self._call(
                self._client.scroll,
                scroll_filter=_filter(filter_),
                limit=self._page,
                offset=offset,
                with_payload=fields,
            )
            yield records
            if offset is None:
                return

    async def _call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        return await self._server.call(
            lambda: method(collection_name=self._name, **arguments), collection=self._name
        )


def _found(found: models.ScoredPoint | models.Record) -> FoundPoint:
    vectors: Any = found.vector
    score = found.score if isinstance(found, models.ScoredPoint) else 0.0
    dense = vectors[DENSE] if vectors and DENSE in vectors else []
    return FoundPoint(str(found.id), unpacked(found.payload or {}), score, dense)


def _filter(data: Json | None) -> models.Filter | None:
    """Return a filter as the client's own type, which has the same fields."""
    return models.Filter.model_validate(data) if data else None
