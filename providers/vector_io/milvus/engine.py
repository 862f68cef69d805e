"""The connection to Milvus: made when it is needed, and the one place that knows its errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from pymilvus import MilvusClient, MilvusException

from corral.api.errors import NotFound, ProviderError, ProviderTimeout, Unavailable
from corral.providers.vector_io._shared.threads import Threads

MOST_ROWS = 16_384
"""Most rows that Milvus returns for one request."""

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

# The driver logs whole requests where one fails, a user's text among them.
for _name in ("pymilvus", "pymilvus.milvus_client", "pymilvus.bulk_writer", "milvus_lite"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Engine:
    """One connection to Milvus, shared by the indexes of a provider. Safe to use from threads.

    It is opened by the first call, and closed when its last user is gone: so an embedded Milvus
    lets go of its folder.

    Args:
        provider_id: For messages.
        connect: Returns a client.
        disconnect: Releases what `connect` took beside the client.
        timeout_seconds: Bound of one call. The driver retries with back-off, on connection errors
            only, within it.
        embedded: Whether Milvus Lite runs in this process.

    Attributes:
        threads: Where its calls run.
    """

    def __init__(
        self,
        provider_id: str,
        connect: Callable[[], MilvusClient],
        disconnect: Callable[[], None],
        *,
        timeout_seconds: float,
        embedded: bool,
    ) -> None:
        self.provider_id = provider_id
        self.embedded = embedded
        self._connect, self._disconnect = connect, disconnect
        self._timeout = timeout_seconds
        self.threads = Threads(provider_id, None if embedded else timeout_seconds)
        self._client: MilvusClient | None = None
        self._users = self._calls = 0
        self._lock = threading.RLock()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Be a user for the time of a context."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Count a user."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count a user less; after the last one, and its calls, the connection is closed."""
        with self._lock:
            self._users -= 1
            self._close_if_idle()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Keep the connection for the time of a call: it is not closed under it.

        Raises:
            Unavailable: There is no user any more; a late call must not open it again.
        """
        with self._lock:
            if not self._users:
                raise Unavailable(f"{self.provider_id}: the vector DB is closed.")
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._users and not self._calls:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
                self._disconnect()

    def alone(self) -> AbstractContextManager[Any]:
        """Return a context in which no other thread uses an embedded Milvus.

        Milvus Lite is Python under the interpreter's lock, so nothing is lost; and a search during
        its flush would miss the rows that are on their way to disk.
        """
        return self._lock if self.embedded else nullcontext()

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client with the timeout, and translate its errors.

        A collection that the server has not loaded, since it was started anew, is loaded.
        """
        with self._at_work(), self.alone(), self._errors():
            function = getattr(self._connected(), method)
            try:
                return function(*arguments, timeout=self._timeout, **options)
            except MilvusException as error:
                if error.code != _COLLECTION_NOT_LOADED:
                    raise
                self._connected().load_collection(arguments[0], timeout=self._timeout)
                return function(*arguments, timeout=self._timeout, **options)

    def scan(
        self, collection: str, expression: str, fields: Sequence[str], step: int = MOST_ROWS
    ) -> Iterator[Any]:
        """Yield every row that passes, fetched so many at a time."""
        options = {"filter": expression, "output_fields": list(fields), "batch_size": step}
        with self._at_work():
            iterator = self.call("query_iterator", collection, **options)
            try:
                while True:
                    with self.alone(), self._errors():
                        rows = iterator.next()
                    if not rows:
                        return
                    yield from rows
            finally:
                iterator.close()

    def search(
        self, collection: str, field: str, vector: NDArray[np.float32] | dict[int, float],
        expression: str, limit: int, fields: Sequence[str], parameters: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        """Return the hits of one query, best first."""
        found = self.call(
            "search",
            collection,
            data=[vector],
            anns_field=field,
            filter=expression,
            limit=limit,
            output_fields=list(fields),
            search_params={"params": parameters},
        )
        return list(found[0])

    def _connected(self) -> MilvusClient:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the contract's errors; the driver's messages may hold data and are left out."""
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
            return NotFound(
                f"{self.provider_id}: the vector DB's collection is gone from Milvus.",
                hint="Delete the vector DB and register it anew.",
                field="vector_db_id",
            )
        if code == _CONNECT_FAILED:
            return Unavailable(f"{self.provider_id}: Milvus cannot be reached.")
        if code == _COLLECTION_NOT_LOADED:  # still, after it was loaded: the server is starting
            return Unavailable(f"{self.provider_id}: Milvus is loading the collection.")
        if code == _RATE_LIMIT:
            return Unavailable(f"{self.provider_id}: Milvus limits the rate of requests.")
        kind, message = _STATUS_ERRORS.get(code, (ProviderError, f"Milvus answered error {code}"))
        return kind(f"{self.provider_id}: {message}.")
