"""The HTTP client of the command line: for a server, or for the app in this process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import httpx

from corral.server.cli.failures import JSON, CommandError, refusal
from corral.server.cli.paths import document_path, quoted, vector_db_path

if TYPE_CHECKING:
    from corral.providers.stack.stack import Stack

_PIECE = 1 << 20


class Client:
    """Sends the requests of the command line; every failure is a `CommandError`.

    Args:
        http: An open client whose base URL is the server's.
        stack: The stack of the app in this process, for data too large for a body in memory; None
            with a server.
    """

    def __init__(self, http: httpx.AsyncClient, stack: Stack | None = None) -> None:
        self._http = http
        self._stack = stack

    async def call(self, method: str, path: str, body: JSON | None = None) -> JSON:
        """Send a request and return the reply: an object, an empty one for null."""
        # ASCII escapes preserve even a lone surrogate in a file name, for the server to check.
        content = None if body is None else json.dumps(body).encode("ascii")
        with self._answered():
            response = await self._http.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
        if not response.is_success:
            raise refusal(response)
        try:
            reply = response.json()
        except ValueError:
            raise CommandError(
                f"{self._url} answered {path} with something that is not JSON.",
                hint="Is a Corral server listening there?",
            ) from None
        return {} if reply is None else _object(reply)

    async def rows(self, path: str) -> list[JSON]:
        """Return the objects of a reply `{"data": [...]}`."""
        data = (await self.call("GET", path)).get("data")
        if not isinstance(data, list):
            raise CommandError("The server's reply has no `data` list.", hint="Is it Corral?")
        return [_object(item) for item in data]

    async def vector_dbs(self, *, counts: bool = False) -> list[JSON]:
        """Return the registered vector DBs, as the server lists them, optionally with counts."""
        return await self.rows(f"/v1/vector-dbs{'?counts=true' * counts}")

    async def vector_db(self, vector_db_id: str, *, counts: bool = False) -> JSON:
        """Return a registered vector DB, optionally with counts."""
        return await self.call("GET", f"{vector_db_path(vector_db_id)}{'?counts=true' * counts}")

    async def register(self, vector_db_id: str, settings: JSON) -> JSON:
        """Register a vector DB and return it."""
        return await self.call("POST", "/v1/vector-dbs", {**settings, "vector_db_id": vector_db_id})

    async def export(self, vector_db_id: str) -> AsyncIterator[bytes]:
        """Yield a snapshot of a vector DB, piece by piece."""
        if self._stack is not None:
            from corral.providers.copying.snapshots import export

            async for piece in export(self._stack, vector_db_id):
                yield piece
            return
        path = f"/v1/snapshots/{quoted(vector_db_id)}"
        with self._answered():
            async with self._http.stream("GET", path) as response:
                if not response.is_success:
                    await response.aread()
                    raise refusal(response)
                async for piece in response.aiter_bytes(_PIECE):
                    yield piece

    async def restore(
        self,
        file: BinaryIO,
        vector_db_id: str | None,
        provider_id: str | None,
        advance: Callable[[int, int], object],
    ) -> JSON:
        """Create a vector DB from a snapshot and return it, with its notes.

        Args:
            file: The snapshot.
            vector_db_id: Id of the new vector DB; None for the id in the snapshot.
            provider_id: Provider of the new vector DB; None: the server decides.
            advance: Called after each piece with 0 and its number of bytes.
        """
        target = {"vector_db_id": vector_db_id, "provider_id": provider_id}
        if self._stack is not None:
            return await _restored(self._stack, file, advance, target)

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
                advance(0, len(piece))

        with self._answered():
            response = await self._http.post(
                "/v1/snapshots",
                params={name: value for name, value in target.items() if value is not None},
                content=pieces(),
                headers={"content-type": "application/zip"},
            )
        if not response.is_success:
            raise refusal(response)
        return _object(response.json())

    async def answer(self, body: JSON) -> AsyncIterator[JSON]:
        """Yield the events of a response, as `POST /v1/responses` streams them."""
        if self._stack is not None:
            async for event in _answered_here(self._stack, body):
                yield event
            return
        sent = {**body, "stream": True}
        with self._answered():
            async with self._http.stream("POST", "/v1/responses", json=sent) as response:
                if not response.is_success:
                    await response.aread()
                    raise refusal(response)
                async for line in response.aiter_lines():
                    name, _, data = line.partition(": ")
                    if name == "data" and data != "[DONE]":
                        yield _object(json.loads(data))

    async def documents(
        self, vector_db_id: str, after: str, limit: int, *, names: bool = False
    ) -> JSON:
        """Return a page of documents: `data`, `has_more` and `last_id`."""
        query = f"after={quoted(after)}&limit={limit}&names={str(names).lower()}"
        return await self.call("GET", f"{vector_db_path(vector_db_id)}/documents?{query}")

    async def document(self, vector_db_id: str, document_id: str, offset: int, limit: int) -> JSON:
        """Return a document with some of its chunks."""
        path = document_path(vector_db_id, document_id)
        return await self.call("GET", f"{path}?offset={offset}&limit={limit}")

    async def delete_document(self, vector_db_id: str, document_id: str) -> JSON:
        """Delete a document with all its chunks, and return what was deleted."""
        return await self.call("DELETE", document_path(vector_db_id, document_id))

    async def submit(
        self,
        vector_db_id: str,
        documents: Sequence[JSON],
        **settings: Any,
    ) -> JSON:
        """Queue documents and return their jobs; unchanged documents are left alone.

        A text is stored as it is, even if it is an address.

        Args:
            vector_db_id: The vector DB to store them in.
            documents: In the wire format.
            settings: Other fields of the body; those that are None are omitted.
        """
        body = {
            **{name: value for name, value in settings.items() if value is not None},
            "documents": [
                {**document, "content": _text_item(document["content"])} for document in documents
            ],
            "vector_db_id": vector_db_id,
            "skip_unchanged": True,
        }
        return await self.call("POST", "/v1/jobs", body)

    async def changed_jobs(self, batch_id: str, version: int) -> JSON:
        """Return the jobs of a batch that changed after a version: `data` and `has_more`."""
        query = f"batch_id={quoted(batch_id)}&changed_after={version}&limit=1000"
        return await self.call("GET", f"/v1/jobs?{query}")

    async def jobs(self, vector_db_id: str, status: str | None, limit: int) -> list[JSON]:
        """Return the newest jobs of a vector DB, optionally only those in one state."""
        only = f"&status={status}" if status else ""
        return await self.rows(f"/v1/jobs?vector_db_id={quoted(vector_db_id)}&limit={limit}{only}")

    async def change_jobs(self, vector_db_id: str, change: str) -> int:
        """Cancel or retry all jobs of a vector DB that allow it, and return their number."""
        reply = await self.call("POST", f"/v1/jobs/{change}", {"vector_db_id": vector_db_id})
        return int(reply["count"])

    async def ask(self, vector_db_id: str, question: str, query_config: JSON) -> JSON:
        """Ask the RAG tool and return its reply: `content` and `metadata`."""
        body = {
            "content": question,
            "vector_db_ids": [vector_db_id],
            "query_config": {k: v for k, v in query_config.items() if v is not None},
        }
        return await self.call("POST", "/v1/tool-runtime/rag-tool/query", body)

    async def models(self) -> list[JSON]:
        """Return the embedding models that can be registered."""
        rows = await self.rows("/v1/models")
        return [model for model in rows if model.get("model_type") == "embedding"]

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Raise CommandError if a request in this context fails."""
        try:
            yield
        except httpx.TimeoutException:
            raise CommandError(f"{self._url} did not answer in time.") from None
        except httpx.TransportError as error:
            raise CommandError(
                f"Cannot reach a server at {self._url}: {str(error) or type(error).__name__}.",
                hint="Start one with `corral serve`, or leave out --url to work without a server.",
            ) from None

    @property
    def _url(self) -> str:
        return str(self._http.base_url).rstrip("/")


def _object(reply: Any) -> JSON:
    if not isinstance(reply, dict):
        raise CommandError("The server's answer is not a JSON object.", hint="Is it Corral?")
    return reply


async def _answered_here(stack: Stack, body: JSON) -> AsyncIterator[JSON]:
    """Yield the events of a response as they arrive, which httpx cannot do for an app."""
    from corral.api.errors import CorralError
    from corral.api.options import checked
    from corral.providers.rag.tool import RagTool
    from corral.server.errors import response_of
    from corral.server.openai.response_asking import prepared
    from corral.server.openai.response_requests import CreateResponse
    from corral.server.openai.responses import failure, written

    tool = RagTool(stack, limits=stack.config.server.limits)
    try:
        work = await prepared(checked(CreateResponse, body), stack)
        try:
            async with aclosing(written(work, stack, tool)) as events:
                async for event in events:
                    yield event
        except CorralError as error:
            raise failure(error, work) from error
    except CorralError as error:
        reply = response_of(error)
        raise refusal(httpx.Response(reply.status_code, content=bytes(reply.body))) from error


async def _restored(
    stack: Stack,
    file: BinaryIO,
    advance: Callable[[int, int], object],
    target: dict[str, str | None],
) -> JSON:
    """Create a vector DB from a snapshot in this process; see `Client.restore`."""
    from corral.providers.copying.snapshots import restore

    size, reported = os.fstat(file.fileno()).st_size, 0

    def stored(chunks: int, total: int) -> None:
        nonlocal reported
        advance(0, size * chunks // total - reported)
        reported = size * chunks // total

    done = await restore(stack, file, progress=stored, **target)
    shown = done.vector_db.model_dump(mode="json")
    return {"vector_db": shown, "chunks": done.chunks, "notes": list(done.notes)}


def _text_item(content: Any) -> Any:
    """Return a text as an item; a plain string with an address would be fetched."""
    return {"type": "text", "text": content} if isinstance(content, str) else content
