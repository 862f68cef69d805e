"""A small client of Corral: over HTTP to a server, or in this process on a data folder.

with CorralClient("http://127.0.0.1:8321", api_key="...") as corral:
    corral.register("notes")
    corral.insert("notes", [{"content": "A fence keeps the cattle in.", "chunk_id": "1"}])
    print(corral.query("notes", "what keeps cattle in?", k=1)[0].content)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8321"
AT_ONCE = 1000
"""Chunks of one request."""

KEPT_ALIVE_SECONDS = 2
"""Idle connections end here before the server ends them, after 5 s: a request never meets a closed
one."""

Json = dict[str, Any]


class CorralError(Exception):
    """Corral refused a request or failed; the message says what to do.

    Args:
        message: As Corral says it.
        status: The HTTP status.
        code: Corral's code of the error, such as not_found, which some routes send with a 400.
    """

    def __init__(self, message: str, status: int, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A chunk that was found.

    Attributes:
        chunk_id: Its id.
        content: Its text.
        metadata: A JSON object.
        score: In [0, 1], higher is better; None where nothing was asked.
    """

    chunk_id: str
    content: str
    metadata: Json
    score: float | None = None


class CorralClient:
    """Asks Corral. Safe to use from several threads.

    Args:
        url: A server's address; None takes the default, or no server where `home` is given.
        api_key: Sent as a bearer token.
        home: A data folder to work on in this process, instead of a server.
        config: Where `home` is given, the `RunConfig` to use; None reads the folder's run.yaml.
        timeout: Seconds for a request; an insert embeds all its texts.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        home: str | Path | None = None,
        config: Any = None,
        timeout: float = 600,
    ) -> None:
        if url is not None and home is not None:
            raise ValueError("url and home are both given; pass one of them")
        self._exit = ExitStack()
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        transport = None
        if home is not None:
            transport = _in_process(Path(home), config)  # the client closes it
            url = "http://localhost"
        base_url = (url or DEFAULT_URL).rstrip("/")
        http = httpx.Client(
            base_url=base_url,
            headers=headers,
            transport=transport,
            timeout=timeout,
            limits=httpx.Limits(keepalive_expiry=KEPT_ALIVE_SECONDS),
        )
        self._http = self._exit.enter_context(http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, or what runs in this process."""
        self._exit.close()

    def register(self, vector_db_id: str, **settings: Any) -> Json:
        """Register a vector DB and return it; the same again returns the stored one.

        Args:
            vector_db_id: Its id.
            settings: Fields of a registration, such as search_mode or language. Without
                embedding_model it is the server's default model.

        Raises:
            ValueError: There is no model to take.
        """
        if "embedding_model" not in settings:
            models = self.call("GET", "/v1/models")["data"]
            if not models:
                raise ValueError(
                    "Corral has no embedding model here. Try: pip install 'corral-rag[e5]'"
                )
            found = [m for m in models if (m.get("metadata") or {}).get("default")] or models
            settings["embedding_model"] = found[0].get("identifier") or found[0]["id"]
        body = {"vector_db_id": vector_db_id, **settings}
        registered: Json = self.call("POST", "/v1/vector-dbs", body)
        return registered

    def is_registered(self, vector_db_id: str) -> bool:
        """Return True if there is a vector DB of that id."""
        known = self.call("GET", "/v1/vector-dbs")["data"]
        return any(each["identifier"] == vector_db_id for each in known)

    def unregister(self, vector_db_id: str) -> None:
        """Delete a vector DB with all its chunks."""
        name = quote(vector_db_id, safe="").replace(".", "%2E")  # `..` would be a step up
        self.call("DELETE", f"/v1/vector-dbs/{name}")

    def insert(self, vector_db_id: str, chunks: Sequence[Mapping[str, Any]]) -> None:
        """Store chunks; one whose chunk_id exists is replaced.

        Args:
            vector_db_id: Where to.
            chunks: `{content, chunk_id?, metadata?, embedding?}`; Corral embeds what has none.
        """
        for start in range(0, len(chunks), AT_ONCE):
            part = [dict(chunk) for chunk in chunks[start : start + AT_ONCE]]
            self._chunks("insert", vector_db_id, chunks=part)

    def get(self, vector_db_id: str, chunk_ids: Sequence[str]) -> list[FoundChunk]:
        """Return the chunks of these ids that exist, in the order of the ids."""
        found: list[FoundChunk] = []
        for start in range(0, len(chunk_ids), AT_ONCE):
            part = list(chunk_ids[start : start + AT_ONCE])
            reply = self._chunks("get", vector_db_id, chunk_ids=part)
            found += [_chunk(each) for each in reply["data"]]
        return found

    def delete(self, vector_db_id: str, chunk_ids: Sequence[str]) -> int:
        """Delete chunks and return how many there were; unknown ids are passed over."""
        deleted = 0
        for start in range(0, len(chunk_ids), AT_ONCE):
            part = list(chunk_ids[start : start + AT_ONCE])
            deleted += self._chunks("delete", vector_db_id, chunk_ids=part)["deleted"]
        return deleted

    def all(self, vector_db_id: str, filters: Json | None = None) -> Iterator[FoundChunk]:
        """Yield every chunk that passes the filter, by id."""
        after, more = "", True
        while more:
            asked = {"after": after, "limit": AT_ONCE, "filters": filters}
            reply = self._chunks("list", vector_db_id, **asked)
            yield from map(_chunk, reply["data"])
            after, more = reply["last_id"], reply["has_more"]

    def query(self, vector_db_id: str, text: str, *, k: int = 5, **params: Any) -> list[FoundChunk]:
        """Return the k best chunks, best first.

        Args:
            vector_db_id: Where to look.
            text: A question or words.
            k: Most chunks.
            params: Other fields of a query, such as mode, filters, rerank or score_threshold.
        """
        reply = self._chunks("query", vector_db_id, query=text, params={"max_chunks": k, **params})
        pairs = zip(reply["chunks"], reply["scores"], strict=True)
        return [_chunk(chunk, score) for chunk, score in pairs]

    def ask(self, question: str, *vector_db_ids: str, **config: Any) -> Json:
        """Return the RAG tool's context: `content` and `metadata`.

        Args:
            question: In words.
            vector_db_ids: Where to look.
            config: Fields of a query_config, such as max_tokens_in_context or citations.
        """
        body = {"content": question, "vector_db_ids": vector_db_ids, "query_config": config}
        found: Json = self.call("POST", "/v1/tool-runtime/rag-tool/query", body)
        return found

    def _chunks(self, what: str, vector_db_id: str, **body: Any) -> Any:
        return self.call("POST", f"/v1/vector-io/{what}", {"vector_db_id": vector_db_id, **body})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON that a route answers, for routes without a method here.

        Args:
            method: Of HTTP.
            path: Begins with /v1.
            body: Sent as JSON.

        Raises:
            CorralError: Corral refused the request, failed, or cannot be reached.
        """
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            told = f"Corral at {self._http.base_url} cannot be reached: {type(error).__name__}."
            raise CorralError(told, 503) from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer.json()


def _chunk(given: Json, score: float | None = None) -> FoundChunk:
    return FoundChunk(given["chunk_id"], given["content"], given["metadata"], score)


def _refusal(answer: httpx.Response) -> CorralError:
    try:
        error = answer.json()["error"]
        return CorralError(str(error["message"]), answer.status_code, error.get("code"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return CorralError(f"Corral answered {answer.status_code}.", answer.status_code)


class _InProcess(httpx.BaseTransport):
    """Runs Corral's app in an event loop of its own and hands it requests.

    Args:
        home: The data folder.
        config: A `RunConfig`, or None.
    """

    def __init__(self, home: Path, config: Any) -> None:
        from corral.api.principal import UNRESTRICTED  # noqa: PLC0415 - a client over HTTP does without
        from corral.providers.library import loop_thread  # noqa: PLC0415 - a client over HTTP does without
        from corral.server.app import create_app  # noqa: PLC0415 - a client over HTTP does without

        app = create_app(config, home, UNRESTRICTED)
        self._loop = loop_thread.LoopThread()
        self._stopping = asyncio.Event()
        ready: Future[None] = Future()

        async def live() -> None:
            """Run the app until it is told to stop; it starts and ends in one task."""
            async with app.router.lifespan_context(app):
                ready.set_result(None)
                await self._stopping.wait()

        with ExitStack() as failed:
            failed.callback(self._loop.close)
            self._living = self._loop.start(live())
            wait([ready, self._living], return_when=FIRST_COMPLETED)
            if not ready.done():
                self._living.result()  # raises why the app did not start
            failed.pop_all()
        self._transport = httpx.ASGITransport(app=app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the app's answer."""
        return self._loop.run(self._handle(request))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        request = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.read()
        )
        answer = await self._transport.handle_async_request(request)
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=await answer.aread()
        )

    def close(self) -> None:
        """End the app and its event loop."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._stop())
            self._living.result()
        finally:
            self._loop.close()

    async def _stop(self) -> None:
        self._stopping.set()


def _in_process(home: Path, config: Any) -> _InProcess:
    try:
        return _InProcess(home, config)
    except ImportError as error:
        told = f"Corral in this process needs {error.name}: pip install corral-rag"
        raise ImportError(told) from error
