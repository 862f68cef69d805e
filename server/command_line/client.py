"""The HTTP client of the command line; `connecting` says whether a server or the app answers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar
from urllib.parse import quote

import httpx

from corral.api.errors import CorralError

if TYPE_CHECKING:
    from corral.providers.stack import Stack

JSON = dict[str, Any]

P = ParamSpec("P")
T = TypeVar("T")

BAD_INPUT = 2
FAILURE = 1
_BAD_INPUT_STATUSES = {400, 404, 409, 413, 415, 422}


class CommandError(CorralError):
    """An expected failure of a command: printed as a message and a hint, never as a traceback.

    Args:
        message: What went wrong, one sentence.
        hint: What to do about it, or "".
        exit_code: 2 where the input is to blame, 1 for every other failure.
        status: The HTTP status behind it, None where no server answered.
    """

    def __init__(
        self, message: str, *, hint: str = "", exit_code: int = FAILURE, status: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.status = status


class Client:
    """The calls that the command line makes. Every one raises `CommandError` when it fails.

    Args:
        http: An open client whose base URL is the server's.
        stack: That of the app in this process, for what is too large for a body in memory; None
            where a server does the work.
    """

    def __init__(self, http: httpx.AsyncClient, stack: Stack | None = None) -> None:
        self._http = http
        self._stack = stack

    async def vector_dbs(self, *, counts: bool = False) -> list[JSON]:
        """Return the registered vector DBs, as the server lists them, on request with counts."""
        return _rows(await self._call("GET", f"/v1/vector-dbs{'?counts=true' * counts}"))

    async def find_vector_db(self, vector_db_id: str) -> JSON | None:
        """Return a registered vector DB, or None if the id is unknown."""
        known = await self.vector_dbs()
        return next((db for db in known if db.get("identifier") == vector_db_id), None)

    async def vector_db(self, vector_db_id: str, *, counts: bool = False) -> JSON:
        """Return a registered vector DB, on request with counts."""
        path = f"{_vector_db_path(vector_db_id)}{'?counts=true' * counts}"
        return _object(await self._call("GET", path))

    async def register(self, vector_db_id: str, settings: JSON) -> JSON:
        """Register a vector DB and return it; where `settings` names no model, with the default.

        The wire requires a model; the default is the one that `/v1/models` marks so, and the
        first one where the server marks none.
        """
        model = settings.get("embedding_model") or await self._default_model()
        body = {**settings, "vector_db_id": vector_db_id, "embedding_model": model}
        return _object(await self._call("POST", "/v1/vector-dbs", body))

    async def unregister(self, vector_db_id: str) -> str:
        """Delete a vector DB with everything in it; return what stays behind, "" for nothing."""
        reply = await self._call("DELETE", _vector_db_path(vector_db_id))
        return str(_object(reply).get("note") or "") if reply else ""

    async def orphans(self) -> JSON:
        """Return the data that no registration holds: `data` and `failures`."""
        return _object(await self._call("GET", "/v1/orphans"))

    async def remove_orphans(self, orphans: Sequence[JSON]) -> None:
        """Delete data that no registration holds."""
        await self._call("POST", "/v1/orphans/remove", {"orphans": list(orphans)})

    async def copy(
        self, source_id: str, target_id: str, provider_id: str | None, after: str, limit: int
    ) -> JSON:
        """Copy the next chunks and return what was done and where to go on."""
        body = {
            "target_id": target_id,
            "provider_id": provider_id,
            "after": after,
            "limit": limit,
        }
        return _object(await self._call("POST", f"{_vector_db_path(source_id)}/copy", body))

    async def verify_copy(self, source_id: str, target_id: str) -> JSON:
        """Compare a copy with its source and return what was compared."""
        path = f"{_vector_db_path(source_id)}/copy/verify"
        return _object(await self._call("POST", path, {"target_id": target_id}))

    async def begin_rebuild(self, vector_db_id: str, settings: JSON) -> JSON:
        """Begin a rebuild, or take it up; return whether it is needed and what changes."""
        path = f"{_vector_db_path(vector_db_id)}/rebuild"
        return _object(await self._call("POST", path, settings))

    async def step_rebuild(self, vector_db_id: str, after: str, limit: int) -> JSON:
        """Build the next chunks and return what was done and where to go on."""
        path = f"{_vector_db_path(vector_db_id)}/rebuild/step"
        return _object(await self._call("POST", path, {"after": after, "limit": limit}))

    async def switch_rebuild(self, vector_db_id: str) -> JSON:
        """Put the new index into service; return the registration and what stays behind."""
        return _object(await self._call("POST", f"{_vector_db_path(vector_db_id)}/rebuild/switch"))

    async def abandon_rebuild(self, vector_db_id: str) -> None:
        """Give a rebuild up."""
        await self._call("POST", f"{_vector_db_path(vector_db_id)}/rebuild/abandon")

    async def export(self, vector_db_id: str) -> AsyncIterator[bytes]:
        """Yield a snapshot of a vector DB, piece by piece."""
        if self._stack is not None:
            from corral.providers.moving import export  # noqa: PLC0415 - start-up time

            async for piece in export(self._stack, vector_db_id):
                yield piece
            return
        path = f"/v1/snapshots/{_quoted(vector_db_id)}"
        with self._transport_errors():
            async with self._http.stream("GET", path) as response:
                if not response.is_success:
                    await response.aread()
                    raise _refusal(response)
                async for piece in response.aiter_bytes(1 << 20):
                    yield piece

    async def restore(
        self,
        file: BinaryIO,
        vector_db_id: str | None,
        provider_id: str | None,
        advance: Callable[[int, int], object],
    ) -> JSON:
        """Make a vector DB of a snapshot and return it, with its notes.

        Args:
            file: The snapshot.
            vector_db_id: What to call it; None: as it was called.
            provider_id: Where its chunks go; None as the server decides.
            advance: Called with 0 and the bytes that were sent or stored, after each piece.
        """
        if self._stack is not None:
            from corral.providers.moving import restore  # noqa: PLC0415 - start-up time

            size, told = os.fstat(file.fileno()).st_size, 0

            def stored(chunks: int, total: int) -> None:
                nonlocal told
                advance(0, size * chunks // total - told)
                told = size * chunks // total

            done = await restore(
                self._stack,
                file,
                vector_db_id=vector_db_id,
                provider_id=provider_id,
                progress=stored,
            )
            shown = done.vector_db.model_dump(mode="json")
            return {"vector_db": shown, "chunks": done.chunks, "notes": list(done.notes)}

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(file.read, 1 << 20):
                yield piece
                advance(0, len(piece))

        asked = {"vector_db_id": vector_db_id, "provider_id": provider_id}
        with self._transport_errors():
            response = await self._http.post(
                "/v1/snapshots",
                params={name: value for name, value in asked.items() if value is not None},
                content=pieces(),
                headers={"content-type": "application/zip"},
            )
        if not response.is_success:
            raise _refusal(response)
        return _object(response.json())

    async def documents(self, vector_db_id: str, after: str, limit: int) -> JSON:
        """Return a page of documents: `data`, `has_more` and `last_id`."""
        asked = f"after={_quoted(after)}&limit={limit}"
        path = f"{_vector_db_path(vector_db_id)}/documents?{asked}"
        return _object(await self._call("GET", path))

    async def document(self, vector_db_id: str, document_id: str, offset: int, limit: int) -> JSON:
        """Return a document with some of its chunks."""
        path = _document_path(vector_db_id, document_id)
        return _object(await self._call("GET", f"{path}?offset={offset}&limit={limit}"))

    async def change_acl(
        self, vector_db_id: str, document_id: str, acl: Sequence[str] | None
    ) -> JSON:
        """Change who may read a document, and return what was changed."""
        path = _document_path(vector_db_id, document_id)
        return _object(await self._call("PATCH", path, {"acl": None if acl is None else [*acl]}))

    async def delete_document(self, vector_db_id: str, document_id: str) -> JSON:
        """Delete a document with all its chunks, and return what was deleted."""
        path = _document_path(vector_db_id, document_id)
        return _object(await self._call("DELETE", path))

    async def submit(
        self,
        vector_db_id: str,
        documents: Sequence[JSON],
        batch_id: str | None,
        *,
        replace_others: bool = False,
    ) -> JSON:
        """Queue documents and return their jobs; unchanged documents are left alone.

        They are split as the vector DB was registered. Text stays text, addresses too.

        Args:
            vector_db_id: Where to.
            documents: As the wire has them.
            batch_id: The batch that they belong to; None makes one.
            replace_others: Whether stored documents of another origin are replaced.
        """
        body = {
            "documents": [
                {**document, "content": _text_item(document["content"])} for document in documents
            ],
            "vector_db_id": vector_db_id,
            "batch_id": batch_id,
            "skip_unchanged": True,
            "same_origin_only": not replace_others,
        }
        return _object(await self._call("POST", "/v1/jobs", body))

    async def changed_jobs(self, batch_id: str, version: int) -> JSON:
        """Return the jobs of a batch that changed after a version: `data` and `has_more`."""
        asked = f"batch_id={_quoted(batch_id)}&changed_after={version}&limit=1000"
        return _object(await self._call("GET", f"/v1/jobs?{asked}"))

    async def jobs(self, vector_db_id: str, status: str | None, limit: int) -> list[JSON]:
        """Return the newest jobs of a vector DB, on request only those in one state."""
        only = f"&status={status}" if status else ""
        asked = f"vector_db_id={_quoted(vector_db_id)}&limit={limit}{only}"
        return _rows(await self._call("GET", f"/v1/jobs?{asked}"))

    async def cancel_jobs(self, batch_id: str) -> None:
        """Cancel what of a batch is not finished."""
        await self._call("POST", "/v1/jobs/cancel", {"batch_id": batch_id})

    async def change_jobs(self, vector_db_id: str, change: str) -> int:
        """Cancel or retry all jobs of a vector DB that can be, and return how many."""
        reply = await self._call("POST", f"/v1/jobs/{change}", {"vector_db_id": vector_db_id})
        return int(_object(reply)["count"])

    async def limits(self) -> JSON:
        """Return what the operator allows: `server` of a request, `document` of a document."""
        return _object(await self._call("GET", "/v1/limits"))

    async def ask(self, vector_db_id: str, question: str, query_config: JSON) -> JSON:
        """Ask the RAG tool and return its reply: `content` and `metadata`."""
        body = {
            "content": question,
            "vector_db_ids": [vector_db_id],
            "query_config": {k: v for k, v in query_config.items() if v is not None},
        }
        return _object(await self._call("POST", "/v1/tool-runtime/rag-tool/query", body))

    async def models(self) -> list[JSON]:
        """Return the embedding models that can be registered."""
        found = _rows(await self._call("GET", "/v1/models"))
        return [model for model in found if model.get("model_type") == "embedding"]

    async def providers(self) -> JSON:
        """Return the reply of `/v1/providers`: the configured providers with their health."""
        return _object(await self._call("GET", "/v1/providers"))

    async def _default_model(self) -> str:
        models = await self.models()
        if not models:
            raise CommandError("There is no embedding model.", hint=await self._why_no_model())
        marked = [m for m in models if (m.get("metadata") or {}).get("default")]
        return str((marked or models)[0]["identifier"])

    async def _why_no_model(self) -> str:
        """Return what the embedding providers say is wrong."""
        configured = (await self.providers()).get("data") or []
        embedding = [one for one in configured if one.get("kind") == "embedding"]
        said = [(one.get("health") or {}).get("message") for one in embedding]
        return " ".join(filter(None, said)) or "Configure one: providers.embedding in run.yaml."

    async def _call(self, method: str, path: str, body: JSON | None = None) -> Any:
        """Send a request and return the parsed reply."""
        # ASCII escapes carry even a lone surrogate of a strange file name, for the server to judge.
        content = None if body is None else json.dumps(body).encode("ascii")
        with self._transport_errors():
            response = await self._http.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
        if not response.is_success:
            raise _refusal(response)
        try:
            return response.json()
        except ValueError:
            raise CommandError(
                f"{self._url} answered {path} with something that is not JSON.",
                hint="Is a Corral server listening there?",
            ) from None

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise CommandError(f"{self._url} did not answer in time.") from None
        except httpx.TransportError as error:
            raise CommandError(
                f"Cannot reach a server at {self._url}: {str(error) or type(error).__name__}.",
                hint="Start one with `corral serve`, or leave --url out to work in process.",
            ) from None

    @property
    def _url(self) -> str:
        return str(self._http.base_url).rstrip("/")


def _vector_db_path(vector_db_id: str) -> str:
    """Return the path of a vector DB."""
    return f"/v1/vector-dbs/{_quoted(vector_db_id)}"


def _document_path(vector_db_id: str, document_id: str) -> str:
    """Return the path of a document."""
    return f"{_vector_db_path(vector_db_id)}/documents/{_quoted(document_id)}"


def _quoted(text: str) -> str:
    """Escape an id; slashes, since it may hold them, and dots, so that `..` is no step upward."""
    return quote(text, safe="", errors="replace").replace(".", "%2E")


def _text_item(content: Any) -> Any:
    """Return a text as an item: a plain string of one address would be fetched."""
    return {"type": "text", "text": content} if isinstance(content, str) else content


def _rows(reply: Any) -> list[JSON]:
    """Return the objects of a reply `{"data": [...]}`."""
    data = _object(reply).get("data")
    if not isinstance(data, list):
        raise CommandError("The server's answer holds no `data` list.", hint="Is it Corral?")
    return [_object(item) for item in data]


def _object(reply: Any) -> JSON:
    if not isinstance(reply, dict):
        raise CommandError("The server's answer is not a JSON object.", hint="Is it Corral?")
    return reply


def _refusal(response: httpx.Response) -> CommandError:
    """Return what a server's error reply says."""
    status = response.status_code
    message, hint = _said(response)
    exit_code = BAD_INPUT if status in _BAD_INPUT_STATUSES else FAILURE
    return CommandError(message, hint=hint, exit_code=exit_code, status=status)


def _said(response: httpx.Response) -> tuple[str, str]:
    """Return message and hint of an error reply, in our shape or in that of a like server."""
    try:
        body = response.json()
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail")
        if isinstance(message, str):
            return message, str(error.get("hint") or "")
        if message:
            return json.dumps(message, ensure_ascii=False), ""
    return f"The server answered {response.status_code} {response.reason_phrase}.", ""
