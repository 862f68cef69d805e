"""A client for Chroma's documented HTTP interface (`/api/v2`), available since Chroma 1.0.

It replaces chromadb's own client, which sets no timeout, connects in its constructor (so it cannot
be created while the server is down), and depends on a hundred megabytes of packages.

Calls block, so the engine runs them in threads. They raise only the contract's errors.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray

from corral.api.errors import (
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.records import Rows, Upsert, matrix_of
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.clients import SharedClient
from corral.providers.vector_io.kit.retries import retried

T = TypeVar("T")

BATCH_BYTES = 8 * 2**20
"""By default, a server rejects requests above 40 MiB; JSON may double the counted size."""
HEALTH_TIMEOUT_SECONDS = 3.0

_HINTS = {
    401: "Check headers.",
    403: "Check headers, tenant and database.",
    413: "Raise the server's max_payload_size_bytes.",
}

NAMES_AT_ONCE = 1000
"""Collections per page of a list."""

ATTEMPTS = 5
"""Maximum attempts to read rows while other writers delete rows."""
READ_ROWS = 1000
"""Rows with texts or embeddings per request."""
DELETE_ROWS = 5000
"""Maximum ids in one request to delete."""
HALF_DROPPED = "Missing metadata segment"
"""Chroma's message for a collection that is being dropped (1.5.9)."""


class UnknownIds(ProviderError):
    """A row of a request does not exist, or was deleted while it was being read."""


def repeated(read: Callable[[], T]) -> T:
    """Retry a read a few times if rows are deleted during it.

    Raises:
        UnknownIds: Rows were deleted during every attempt.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(UnknownIds):
            return read()
    return read()


class ChromaServer:
    """One server, tenant and database. Safe to use from many threads.

    Error messages contain neither texts nor headers.

    Attributes:
        http: The client, connected while it has users.
    """

    def __init__(self, provider_id: str, config: RemoteChromaConfig) -> None:
        self._name = f"{provider_id} (remote::chroma)"
        self._config = config
        self._limits: dict[str, Any] = {}
        path = (
            f"/tenants/{quote(config.tenant, safe='')}/databases/{quote(config.database, safe='')}"
        )
        self._collections = f"{path}/collections"
        self.http = SharedClient(self._name, self._connect, httpx.Client.close)

    def _connect(self) -> httpx.Client:
        headers = self._config.headers.items()
        return httpx.Client(
            base_url=f"{self._config.url.rstrip('/')}/api/v2",
            headers={name: value.get_secret_value() for name, value in headers},
            limits=httpx.Limits(max_connections=self._config.max_connections),
            # Loading certificates takes 30 ms, and plain http needs none.
            verify=httpx.URL(self._config.url).scheme == "https",
        )

    def create(self, name: str, configuration: Mapping[str, Any]) -> Collection:
        """Return the collection of this name, created if it is missing."""
        asked = {"name": name, "get_or_create": True, "configuration": dict(configuration)}
        found = self.request("POST", self._collections, asked)
        return self._collection(found)

    def open(self, name: str) -> Collection | None:
        """Return the collection of this name, or None."""
        try:
            return self._collection(self.request("GET", f"{self._collections}/{name}"))
        except NotFound:
            return None

    def names(self) -> list[str]:
        """Return the names of all collections, including those of other programs."""
        found: list[str] = []
        while True:
            page = f"limit={NAMES_AT_ONCE}&offset={len(found)}"
            names = [one["name"] for one in self.request("GET", f"{self._collections}?{page}")]
            found += names
            if len(names) < NAMES_AT_ONCE:
                return found

    def drop(self, name: str) -> None:
        """Delete the collection of this name, if there is one."""
        with suppress(NotFound):
            self.request("DELETE", f"{self._collections}/{name}")

    def ping(self) -> str:
        """Return the server's version, or raise the error of a request; wait at most 3 seconds."""
        deadline = time.monotonic() + min(HEALTH_TIMEOUT_SECONDS, self._config.timeout_seconds)
        self._attempt("GET", f"{self._collections}?limit=1", None, deadline)
        return str(self._attempt("GET", "/version", None, deadline))

    def batch_rows(self) -> int:
        """Return the maximum number of rows in one request."""
        if not self._limits:
            self._limits = self.request("GET", "/pre-flight-checks")
        return int(self._limits["max_batch_size"])

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the decoded JSON; retry if the connection fails.

        Repeating is safe: all requests made here are idempotent.

        Raises:
            Unavailable: The server cannot be reached, or reports that it is unavailable.
            ProviderTimeout: The server did not answer in time.
            NotFound: The collection does not exist.
            ProviderError: The server rejected the request.
        """
        deadline = time.monotonic() + self._config.timeout_seconds
        return retried(
            partial(self._attempt, method, path, body, deadline),
            lambda error: isinstance(error, _ConnectionFailed),
            self._config.max_retries + 1,
            self._config.retry_delay_seconds,
            within_seconds=self._config.timeout_seconds,
        )

    def _attempt(
        self, method: str, path: str, body: Mapping[str, Any] | None, deadline: float
    ) -> Any:
        seconds = max(0.001, deadline - time.monotonic())
        try:
            with self.http.calling():
                http = self.http.connected()
                response = http.request(method, path, json=body, timeout=seconds)
            if response.is_success:
                return response.json()
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise ProviderTimeout(
                f"{self._name} did not answer within {self._config.timeout_seconds:g} seconds.",
                hint="Raise timeout_seconds.",
            ) from error
        except httpx.TransportError as error:
            raise _ConnectionFailed(
                f"{self._name} cannot be reached ({type(error).__name__}).",
                hint="Check that the server runs at url.",
            ) from error
        except (ValueError, httpx.DecodingError) as error:
            raise ProviderError(f"{self._name} did not answer with JSON.") from error
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> CorralError:
        status = response.status_code
        message = f"{self._name} answered {status}."
        if status == 404 or HALF_DROPPED in response.text:
            return NotFound(f"{self._name}: the collection is gone from Chroma.")
        if status in {429, 502, 503, 504}:
            return Unavailable(message, hint="The server is overloaded or still starting.")
        if "finding id" in response.text:
            return UnknownIds(f"{self._name}: a chunk is gone.")
        if "hnsw" in response.text:
            return ProviderError(
                f"{self._name}: the server cannot use its graph of embeddings.",
                hint="If it was killed, stop it, open its folder once with inline::chroma, which "
                "restores as much as possible, and start it again.",
            )
        return ProviderError(message, hint=_HINTS.get(status, ""))

    def _collection(self, found: Mapping[str, Any]) -> Collection:
        return Collection(self, f"{self._collections}/{found['id']}", str(found["id"]))


class _ConnectionFailed(Unavailable):
    """A failure after which a retry is worthwhile."""


class Collection:
    """One collection of a server. Safe to use from many threads.

    Attributes:
        uuid: Chroma's id of the collection; it changes if the collection is recreated.
        batch_bytes: Approximate maximum size of the embeddings and texts of one call.
    """

    batch_bytes = BATCH_BYTES

    def __init__(self, server: ChromaServer, path: str, uuid: str) -> None:
        self.uuid = uuid
        self._server = server
        self._path = path

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._server.request("GET", f"{self._path}/count"))

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one step, at most `batch_rows` rows and `batch_bytes` bytes."""
        packed = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows.embeddings]
        body = {
            "ids": list(rows.ids),
            "embeddings": packed,
            "metadatas": list(rows.metadatas),
        }
        self._server.request("POST", f"{self._path}/upsert", body)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        self._server.request("POST", f"{self._path}/delete", {"ids": list(ids)})

    def delete_all(self, ids: Sequence[str]) -> None:
        """Delete rows in batches; unknown ids are ignored."""
        for some in runs(ids, DELETE_ROWS):
            self.delete(some)

    def get(
        self,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
    ) -> Rows:
        """Return the rows with these ids, or the rows that pass Chroma's filter, in any order.

        Args:
            ids: Unknown ids are skipped; None selects all rows. Never empty.
            where: Chroma's filter; None for none.
            include: `metadatas`, `embeddings`.
        """
        body = {"ids": ids, "where": where, "include": list(include)}
        found = self._server.request("POST", f"{self._path}/get", body)
        return Rows(
            found["ids"],
            [dict(metadata or {}) for metadata in found.get("metadatas") or ()],
            matrix_of(found["embeddings"], len(found["ids"])) if "embeddings" in include else None,
        )

    def read(self, ids: Sequence[str], include: Sequence[str]) -> Iterator[Rows]:
        """Yield the existing rows of these ids in batches."""
        for some in runs(ids, READ_ROWS):
            yield repeated(partial(self.get, some, include=include))

    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the ids and distances of at most k approximately nearest rows, nearest first.

        Raises:
            UnknownIds: One of `ids`, to which the search is restricted, does not exist.
        """
        body = {
            "query_embeddings": [embedding.tolist()],
            "n_results": k,
            "ids": ids,
            "include": ["distances"],
        }
        found = self._server.request("POST", f"{self._path}/query", body)
        return Rows(found["ids"][0], distances=found["distances"][0])

    @property
    def batch_rows(self) -> int:
        """Maximum number of rows of one call, reported by the server."""
        return self._server.batch_rows()
