"""A client for an OpenSearch cluster, error translation, and one index of the cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from opensearchpy import AsyncHttpConnection, AsyncOpenSearch, AWSV4SignerAsyncAuth
from opensearchpy.exceptions import (
    ConnectionError as NotConnected,
)
from opensearchpy.exceptions import (
    ConnectionTimeout,
    NotFoundError,
    OpenSearchException,
    RequestError,
    TransportError,
)

from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.clients import SharedAsyncClient, aws_credentials, tls_context
from corral.providers.vector_io.kit.refusals import data_is_gone, refuse_newer
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.records import (
    LAYOUT,
    WINDOW,
    Document,
    Json,
    RequestLimits,
    bulk_bodies,
    bulk_deletion,
    changes,
    index_body,
    json_lines,
)

OLDEST = (2, 17)
"""The first release with `ef_search` for Lucene's graphs and `innerproduct` in them."""

AWS_COMMAND = 'pip install "corral-rag[opensearch-aws]"'

PIT_KEEP_ALIVE = "1m"

NDJSON = "application/x-ndjson"

_GRACE_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.1
_OVERLOADED = (429, 502, 503)
_DISTRUST = "certificate"
_NODE_GONE = {"node_not_connected_exception", "node_disconnected_exception"}
"""Errors 500 of searches of a shard on a node that has just gone."""
_STATUS_ERRORS: dict[object, tuple[type[ProviderError], str]] = {
    401: (ProviderError, "OpenSearch refused the user or the signature"),
    403: (ProviderError, "OpenSearch refused permission"),
    413: (ProviderError, "OpenSearch refused a request as too large"),
    429: (Unavailable, "OpenSearch has no capacity left"),
    502: (Unavailable, "OpenSearch cannot be reached"),
    503: (Unavailable, "OpenSearch has no copy of the data ready"),
    504: (ProviderTimeout, "OpenSearch did not answer in time"),
    _DISTRUST: (
        ProviderError,
        "OpenSearch's certificate is not of an authority in ca_file, or not for the host of url",
    ),
}

# The client logs request bodies, which contain users' texts.
logging.getLogger("opensearch").setLevel(logging.CRITICAL + 1)


async def _disconnect(client: AsyncOpenSearch) -> None:
    """Close all connections; the driver leaves open those to nodes that it has marked as down."""
    await client.close()
    transport: Any = client.transport
    for connection in transport.seed_connections:
        await connection.close()


class Cluster:
    """One client, shared by the indexes of a provider and used by the tasks of one event loop.

    Attributes:
        client: The driver's client, open while it has users.
    """

    def __init__(self, provider_id: str, config: OpenSearchConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self.client = SharedAsyncClient(provider_id, self._connect, _disconnect)

    async def request(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        mime_type: str = "application/json",
        **params: str,
    ) -> Any:
        """Send a request within the timeout; retry if the cluster is unreachable or overloaded.

        Repeating is safe: all requests of this provider are idempotent.

        Raises:
            Unavailable, ProviderTimeout, ProviderError: See `error`.
            ConfigError: The server is not OpenSearch, or is too old.
        """

        async def attempt() -> Any:
            transport: Any = (await self.client.connected()).transport
            headers = {"content-type": mime_type}
            return await transport.perform_request(
                method, path, params=params, body=body, headers=headers
            )

        attempts = self.config.retries + 1
        try:
            async with (
                self.client.calling(),
                asyncio.timeout(self.config.timeout_seconds + _GRACE_SECONDS),
            ):
                return await retried_async(attempt, _is_passing, attempts, _FIRST_PAUSE_SECONDS)
        except TimeoutError as error:
            raise self.error(504) from error
        except OpenSearchException as error:
            raise self.error(_status(error)) from error

    async def version(self) -> str:
        """Return the version of the node that answers."""
        return str((await self.request_once("GET", "/")).get("version", {}).get("number", ""))

    async def request_once(self, method: str, path: str, **params: str) -> Any:
        """Send a request as a temporary user of the client, for when no index may be open."""
        async with self.client.using():
            return await self.request(method, path, None, **params)

    async def _connect(self) -> AsyncOpenSearch:
        client = self._new_client()
        try:
            transport: Any = client.transport
            self._check_version(await transport.perform_request("GET", "/"))
        except BaseException:
            await _disconnect(client)
            raise
        return client

    def _new_client(self) -> AsyncOpenSearch:
        config = self.config
        urls = [urlsplit(url) for url in (config.url, *config.other_urls)]
        secure = urls[0].scheme == "https"
        options: Json = {}
        if secure:
            options["ssl_context"] = tls_context(self.provider_id, config.ca_file)
        if config.aws_region:
            credentials = aws_credentials(self.provider_id, AWS_COMMAND)
            options["http_auth"] = AWSV4SignerAsyncAuth(credentials, config.aws_region)
            options["connection_class"] = AsyncHttpConnection  # The default one cannot sign.
        elif config.password:
            options["http_auth"] = (config.user, config.password.get_secret_value())
        return AsyncOpenSearch(
            [{"host": u.hostname, "port": u.port or (443 if secure else 80)} for u in urls],
            use_ssl=secure,
            timeout=config.timeout_seconds,
            maxsize=config.max_connections,
            max_retries=len(urls) - 1,  # One attempt per node; `request` retries after a pause.
            retry_on_status=(502, 503),
            **options,
        )

    def _check_version(self, answer: Any) -> None:
        version = answer.get("version", {})
        number, name = str(version.get("number", "")), version.get("distribution")
        if name != "opensearch":
            other = f"Elasticsearch {number}" if "build_flavor" in version else "not OpenSearch"
            raise ConfigError(
                f"{self.provider_id}: the server is {other}.",
                hint="Elasticsearch has other vector fields and queries and is not supported.",
            )
        parts = re.match(r"([0-9]+)\.([0-9]+)", number)
        if parts and (int(parts[1]), int(parts[2])) < OLDEST:
            raise ConfigError(
                f"{self.provider_id}: OpenSearch {number} is too old.",
                hint=f"Upgrade it to {'.'.join(map(str, OLDEST))} or newer.",
            )

    def error(self, status: object) -> ProviderError:
        """Return the contract's error for a status, without the server's text, which has data."""
        other = (ProviderError, f"OpenSearch answered with error {status}")
        kind, message = _STATUS_ERRORS.get(status, other)
        return kind(f"{self.provider_id}: {message}.")


def _is_passing(error: BaseException) -> bool:
    """Return True if a request may succeed if it is sent again."""
    return isinstance(error, TransportError) and (
        _status(error) in _OVERLOADED or _explained(error)[0] in _NODE_GONE
    )


def _status(error: BaseException) -> object:
    """Return the HTTP status of an error, or the one that stands for it in `_STATUS_ERRORS`."""
    if isinstance(error, ConnectionTimeout):
        return 504
    if isinstance(error, NotConnected):
        return _DISTRUST if isinstance(error.info, ssl.CertificateError) else 502
    return error.status_code if isinstance(error, TransportError) else None


class ClusterIndex:
    """One index by name: creation, checks, reads and writes.

    Writes go through an alias and require it. If a write names an unknown index, OpenSearch creates
    the index, but it never creates an alias.

    Args:
        cluster: The cluster; the index is registered as its user until `leave`.
    """

    def __init__(
        self, vector_db: VectorDB, name: str, cluster: Cluster, limits: RequestLimits
    ) -> None:
        self.config = cluster.config
        self._vector_db = vector_db
        self._limits = limits
        self._name = name
        self._alias = f"{name}-write"
        self._cluster = cluster
        self._is_open = True
        cluster.client.enter()

    async def make(self) -> bool:
        """Create the index if it does not exist; return True if this call created it.

        Raises:
            ConfigError: OpenSearch refuses the settings.
        """
        body = index_body(self._vector_db, self.config, self._alias)
        try:
            await self._cluster.request("PUT", f"/{self._name}", body)
        except ProviderError as error:
            refusal = error.__cause__
            if not isinstance(refusal, RequestError):
                raise
            kind, reason = _explained(refusal)
            if kind == "resource_already_exists_exception":
                return False
            raise ConfigError(
                f"{self._cluster.provider_id}: OpenSearch refused to create the index: {reason}.",
                hint="Change the provider's settings, or install the k-NN plugin.",
            ) from error
        return True

    async def check(self) -> None:
        """Refuse an index with a newer layout or with other fields.

        Raises:
            NotFound: The index is gone.
            ConfigError: A newer Corral wrote it, or its mapping was changed.
        """
        answer = await self.request("GET", "_mapping")
        mapping = answer[self._name]["mappings"]
        layout = mapping.get("_meta", {}).get("corral_layout", 0)
        refuse_newer(layout, LAYOUT, self._cluster.provider_id)
        if changed := changes(mapping, self._vector_db):
            raise ConfigError(
                f"{self._cluster.provider_id}: the mapping of index {self._name} was changed:"
                f" {', '.join(changed)}.",
                hint="Restore the index from a snapshot, or register the vector DB again.",
            )

    async def drop(self) -> None:
        """Delete the index, if it exists."""
        await drop_index(self._cluster, self._name)

    async def leave(self) -> None:
        """Unregister from the client."""
        if self._is_open:
            self._is_open = False
            await self._cluster.client.leave()

    # --- reading -----------------------------------------------------------------------------

    async def search(self, body: Json) -> Json:
        """Search the whole index, with statistics shared by all shards, and return the answer.

        Raises:
            Unavailable: A shard is missing.
        """
        answer: Json = self._whole(await self._post("_search", body, **_SEARCH))
        return answer

    async def count(self, query: Json) -> int:
        """Return the exact number of documents that match."""
        return _total(await self.search(_counting(query)))

    async def counts(self, queries: Sequence[Json]) -> list[int]:
        """Return the exact number of documents that match each query, by one request."""
        lines = json_lines(*chain.from_iterable((_SEARCH, _counting(query)) for query in queries))
        answers = (await self._post("_msearch", lines, mime_type=NDJSON))["responses"]
        if all(map(_is_whole, answers)):
            return [*map(_total, answers)]
        # Sent alone, a search is repeated, and its error translated.
        return [await self.count(query) for query in queries]

    async def fetch(
        self, ids: Sequence[str], fields: Sequence[str] | None, *, realtime: bool = False
    ) -> list[Document]:
        """Return the documents with these ids that exist.

        Args:
            ids: Any number.
            fields: The fields to return; None for all.
            realtime: True to see writes that no refresh has made visible to searches yet.
        """
        documents: list[Document] = []
        options = {"realtime": str(realtime).lower()}
        if fields is not None:
            options["_source_includes"] = ",".join(fields)
        for part in runs(ids, self._limits.read_documents):
            answer = await self._post("_mget", {"ids": list(part)}, **options)
            for one in answer["docs"]:
                if "error" in one:
                    self._raise_for(one["error"].get("type"), 503)
                if one.get("found"):
                    documents.append(Document(one["_id"], one["_source"]))
        return documents

    async def hits(self, body: Json) -> list[Json]:
        """Search as `search` does, and return the hits."""
        hits: list[Json] = (await self.search(body))["hits"]["hits"]
        return hits

    async def listed(self, query: Json, after: str = "") -> AsyncGenerator[str, None]:
        """Yield the ids of all chunks that match, in ascending order.

        All pages show the index at one point in time.

        Args:
            after: Only chunk ids above it.
        """
        path, params = "_search/point_in_time", {"keep_alive": PIT_KEEP_ALIVE}
        pit = (await self._post(path, None, **params, allow_partial_pit_creation="false"))["pit_id"]
        body: Json = {
            "size": WINDOW,
            "query": query,
            "sort": [{"chunk_id": "asc"}],
            "stored_fields": "_none_",
            "track_total_hits": False,
            "search_after": [after],
            "pit": {"id": pit, "keep_alive": PIT_KEEP_ALIVE},
        }
        try:
            while True:
                answer = await self._cluster.request("POST", "/_search", body, **_WHOLE)
                hits = self._whole(answer)["hits"]["hits"]
                for hit in hits:
                    yield hit["sort"][0]
                if len(hits) < WINDOW:
                    return
                body["search_after"] = hits[-1]["sort"]
        finally:
            with suppress(CorralError):  # It expires by itself.
                await self._cluster.request("DELETE", "/_search/point_in_time", {"pit_id": [pit]})

    # --- writing -----------------------------------------------------------------------------

    async def put(self, documents: Sequence[Document]) -> None:
        """Write documents; searches see them after `refresh`.

        Raises:
            ProviderError: OpenSearch refused one; others may have been written.
        """
        bodies = await asyncio.to_thread(list, bulk_bodies(documents, self._limits))
        for body in bodies:
            await self._bulk(body)

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; unknown ids are ignored. Searches see it after `refresh`."""
        for part in runs(ids, WINDOW):
            await self._bulk(bulk_deletion(part))

    async def refresh(self) -> None:
        """Wait until searches on all copies see the writes so far."""
        self._whole(await self._post("_refresh", None))

    async def _bulk(self, body: bytes) -> None:
        answer = await self._cluster.request(
            "POST",
            f"/{self._alias}/_bulk",
            body,
            mime_type=NDJSON,
            require_alias="true",
            timeout=f"{max(1, int(self.config.timeout_seconds * 1000))}ms",
        )
        items = [result for item in answer["items"] for result in item.values()]
        if refused := [one for one in items if "error" in one]:
            for one in refused:
                self._raise_for(one["error"].get("type"), one["status"])
            raise ProviderError(
                f"{self._cluster.provider_id}: OpenSearch refused {len(refused)} of {len(items)}"
                " chunks."
            )

    # --- requests ----------------------------------------------------------------------------

    async def request(
        self, method: str, path: str, body: Json | bytes | None = None, **params: str
    ) -> Any:
        """Send a request to the index.

        Raises:
            NotFound: The index is gone.
        """
        try:
            return await self._cluster.request(method, f"/{self._name}/{path}", body, **params)
        except ProviderError as error:
            if isinstance(error.__cause__, NotFoundError):
                raise self._gone() from error
            raise

    async def _post(self, path: str, body: Json | bytes | None, **params: str) -> Any:
        return await self.request("POST", path, body, **params)

    def _whole(self, answer: Any) -> Any:
        """Return an answer after checking that all shards contributed to it."""
        if not _is_whole(answer):
            raise self._cluster.error(504 if answer.get("timed_out") else 503)
        return answer

    def _raise_for(self, kind: str | None, status: int) -> None:
        """Raise a specific error for a failed part of an answer, if its status implies one."""
        if kind == "index_not_found_exception":
            raise self._gone()
        if status in _STATUS_ERRORS:
            raise self._cluster.error(status)

    def _gone(self) -> NotFound:
        return data_is_gone(
            f"{self._cluster.provider_id}: the vector DB's index is gone from OpenSearch."
        )


_WHOLE = {"allow_partial_search_results": "false"}
_SEARCH = {**_WHOLE, "search_type": "dfs_query_then_fetch"}


def _counting(query: Json) -> Json:
    return {"size": 0, "track_total_hits": True, "query": query}


def _total(answer: Json) -> int:
    return int(answer["hits"]["total"]["value"])


def _is_whole(answer: Json) -> bool:
    """Return True for an answer without an error, to which all shards contributed."""
    return not ("error" in answer or answer.get("timed_out") or answer["_shards"]["failed"])


async def drop_index(cluster: Cluster, name: str) -> None:
    """Delete an index, if it exists."""
    await cluster.request_once("DELETE", f"/{name}", ignore_unavailable="true")


async def index_names(cluster: Cluster, prefix: str) -> list[str]:
    """Return the names of all indexes with a prefix."""
    return list(await cluster.request_once("GET", f"/{prefix}*/_alias"))


def _explained(error: TransportError) -> tuple[str, str]:
    """Return the type of an error, and its text, which may be shown if it is about settings."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        body: Any = error.info
        if not isinstance(body, dict):  # `AsyncHttpConnection` does not parse it.
            body = json.loads(error.error)
        cause = body["error"]["root_cause"][0]
        return str(cause["type"]), str(cause["reason"])
    return "", f"error {error.status_code}"
