"""The connection to Milvus: made when it is needed, and the one place that knows its errors."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from pymilvus import MilvusClient, MilvusException

from corral.api.errors import NotFound, ProviderError, ProviderTimeout, Unavailable
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.kit.clients import SharedClient

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


class Embedded:
    """Milvus Lite in this process, as the channel that the driver calls; no port is open.

    Args:
        path: Its folder.

    Raises:
        Exception: Milvus Lite cannot open the folder.
    """

    def __init__(self, path: str) -> None:
        import milvus_lite
        from milvus_lite.adapter.grpc import servicer

        self._engine = milvus_lite.MilvusLite(path)
        _remove_torn(Path(path))
        self._methods = servicer.MilvusServicer(self._engine)
        atexit.register(self.close)

    def unary_unary(self, path: str, *_: Any, **__: Any) -> _Method:
        """Return a method by its path."""
        return _Method(getattr(self._methods, path.rpartition("/")[2]))

    unary_stream = stream_stream = unary_unary  # the driver looks these up and calls none

    def close(self) -> None:
        """Let go of the folder."""
        atexit.unregister(self.close)
        self._engine.close()


def _remove_torn(folder: Path) -> None:
    """Remove index files that a killed process did not finish.

    Milvus Lite writes them in place and refuses to load a collection that has a torn one; one that
    is missing is rebuilt from the rows.
    """
    for file in folder.glob("collections/*/partitions/*/indexes/*.idx"):
        try:
            np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            file.unlink()


class _Method:
    """A method of an embedded Milvus in the three shapes that the driver calls."""

    def __init__(self, method: Callable[[Any, None], Any]) -> None:
        self._method = method

    def __call__(self, request: Any, **_: Any) -> Any:
        return self._method(request, None)

    def with_call(self, request: Any, **_: Any) -> tuple[Any, None]:
        """Return the answer; there is no call to tell of."""
        return self(request), None

    def future(self, request: Any, **_: Any) -> Future[Any]:
        """Return the answer, which has come."""
        answer: Future[Any] = Future()
        answer.set_result(self(request))
        return answer


class Connection:
    """One connection to Milvus, shared by the indexes of a provider. Safe to use from threads.

    It is opened by the first call, and closed when its last user is gone: so an embedded Milvus
    lets go of its folder.

    Args:
        connect: Returns a client.
        timeout_seconds: Bound of one call. The driver retries with back-off, on connection errors
            only, within it.
        embedded: Whether Milvus Lite runs in this process.

    Attributes:
        threads: Where its calls run.
        client: The driver's client; its users say so.
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
        self.threads = (
            ThreadPool(
                provider_id, None, max_threads=1
            )  # two would only wait for the interpreter's lock
            if embedded
            else ThreadPool(provider_id, timeout_seconds)
        )
        self.client = SharedClient(provider_id, connect, MilvusClient.close)

    def exclusive(self) -> AbstractContextManager[Any]:
        """Return a context in which no other thread uses an embedded Milvus.

        Milvus Lite is Python under the interpreter's lock, so nothing is lost; and a search during
        its flush would miss the rows that are on their way to disk.
        """
        return self.client.lock if self.embedded else nullcontext()

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client with the timeout, and translate its errors.

        A collection that the server has not loaded, since it was started anew, is loaded.
        """
        with self.client.calling(), self.exclusive(), self._errors():
            function = getattr(self.client.connected(), method)
            try:
                return function(*arguments, timeout=self._timeout, **options)
            except MilvusException as error:
                if error.code != _COLLECTION_NOT_LOADED:
                    raise
                self.client.connected().load_collection(arguments[0], timeout=self._timeout)
                return function(*arguments, timeout=self._timeout, **options)

    def scan(
        self, collection: str, expression: str, fields: Sequence[str], step: int = MOST_ROWS
    ) -> Iterator[Any]:
        """Yield every row that passes, fetched so many at a time."""
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
                hint="Delete the vector DB and register it again.",
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
