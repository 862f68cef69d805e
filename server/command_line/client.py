"""The HTTP client of the command line; `connecting` says whether a server or the app answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import httpx

from corral.server.command_line.paths import document_path, quoted, vector_db_path
from corral.server.command_line.transport import (
    JSON,
    CommandError,
    Transport,
    object_of,
    refusal,
    rows_of,
)

if TYPE_CHECKING:
    from corral.providers.stack import Stack

_PIECE = 1 << 20


class Client:
    """The calls that the command line makes. Every one raises `CommandError` when it fails.

    Args:
        http: An open client whose base URL is the server's.
        stack: That of the app in this process, for what is too large for a body in memory; None
            where a server does the work.
    """

    def __init__(self, http: httpx.AsyncClient, stack: Stack | None = None) -> None:
        self._transport = Transport(http)
        self._stack = stack

    async def vector_dbs(self, *, counts: bool = False) -> list[JSON]:
        """Return the registered vector DBs, as the server lists them, on request with counts."""
        return rows_of(
            await self._transport.call("GET", f"/v1/vector-dbs{'?counts=true' * counts}")
        )

    async def find_vector_db(self, vector_db_id: str) -> JSON | None:
        """Return a registered vector DB, or None if the id is unknown."""
        known = await self.vector_dbs()
        return next((db for db in known if db.get("identifier") == vector_db_id), None)

    async def vector_db(self, vector_db_id: str, *, counts: bool = False) -> JSON:
        """Return a registered vector DB, on request with counts."""
        path = f"{vector_db_path(vector_db_id)}{'?counts=true' * counts}"
        return await self._object("GET", path)

    async def register(self, vector_db_id: str, settings: JSON) -> JSON:
        """Register a vector DB and return it; where `settings` names no model, with the default.

        The wire requires a model; the default is the one that `/v1/models` marks so, and the
        first one where the server marks none.
        """
        model = settings.get("embedding_model") or await self._default_model()
        body = {**settings, "vector_db_id": vector_db_id, "embedding_model": model}
        return await self._object("POST", "/v1/vector-dbs", body)

    async def unregister(self, vector_db_id: str) -> str:
        """Delete a vector DB with everything in it; return what stays behind, "" for nothing."""
        reply = await self._transport.call("DELETE", vector_db_path(vector_db_id))
        return str(object_of(reply).get("note") or "") if reply else ""

    async def orphans(self) -> JSON:
        """Return the data that no registration holds: `data` and `failures`."""
        return await self._object("GET", "/v1/orphans")

    async def remove_orphans(self, orphans: Sequence[JSON]) -> None:
        """Delete data that no registration holds."""
        await self._transport.call("POST", "/v1/orphans/remove", {"orphans": list(orphans)})

    async def copy(
        self, source_id: str, target_id: str, provider_id: str | None, after: str, limit: int
    ) -> JSON:
        """Copy the next chunks and return what was done and where to go on."""
        body = {"target_id": target_id, "provider_id": provider_id, "after": after, "limit": limit}
        return await self._object("POST", f"{vector_db_path(source_id)}/copy", body)

    async def verify_copy(self, source_id: str, target_id: str) -> JSON:
        """Compare a copy with its source and return what was compared."""
        path = f"{vector_db_path(source_id)}/copy/verify"
        return await self._object("POST", path, {"target_id": target_id})

    async def begin_rebuild(self, vector_db_id: str, settings: JSON) -> JSON:
        """Begin a rebuild, or take it up; return whether it is needed and what changes."""
        path = f"{vector_db_path(vector_db_id)}/rebuild"
        return await self._object("POST", path, settings)

    async def step_rebuild(self, vector_db_id: str, after: str, limit: int) -> JSON:
        """Build the next chunks and return what was done and where to go on."""
        path = f"{vector_db_path(vector_db_id)}/rebuild/step"
        return await self._object("POST", path, {"after": after, "limit": limit})

    async def switch_rebuild(self, vector_db_id: str) -> JSON:
        """Put the new index into service; return the registration and what stays behind."""
        return await self._object("POST", f"{vector_db_path(vector_db_id)}/rebuild/switch")

    async def abandon_rebuild(self, vector_db_id: str) -> None:
        """Give a rebuild up."""
        await self._transport.call("POST", f"{vector_db_path(vector_db_id)}/rebuild/abandon")

    async def export(self, vector_db_id: str) -> AsyncIterator[bytes]:
        """Yield a snapshot of a vector DB, piece by piece."""
        if self._stack is not None:
            from corral.providers.copying.snapshots import export  # noqa: PLC0415 - start-up time

            async for piece in export(self._stack, vector_db_id):
                yield piece
            return
        path = f"/v1/snapshots/{quoted(vector_db_id)}"
        with self._transport.transport_errors():
            async with self._transport.http.stream("GET", path) as response:
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
        """Make a vector DB of a snapshot and return it, with its notes.

        Args:
            file: The snapshot.
            vector_db_id: What to call it; None: as it was called.
            provider_id: Where its chunks go; None as the server decides.
            advance: Called with 0 and the bytes that were sent or stored, after each piece.
        """
        asked = {"vector_db_id": vector_db_id, "provider_id": provider_id}
        if self._stack is not None:
            return await _restored(self._stack, file, advance, asked)

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
                advance(0, len(piece))

        with self._transport.transport_errors():
            response = await self._transport.http.post(
                "/v1/snapshots",
                params={name: value for name, value in asked.items() if value is not None},
                content=pieces(),
                headers={"content-type": "application/zip"},
            )
        if not response.is_success:
            raise refusal(response)
        return object_of(response.json())

    async def documents(self, vector_db_id: str, after: str, limit: int) -> JSON:
        """Return a page of documents: `data`, `has_more` and `last_id`."""
        asked = f"after={quoted(after)}&limit={limit}"
        path = f"{vector_db_path(vector_db_id)}/documents?{asked}"
        return await self._object("GET", path)

    async def document(self, vector_db_id: str, document_id: str, offset: int, limit: int) -> JSON:
        """Return a document with some of its chunks."""
        path = document_path(vector_db_id, document_id)
        return await self._object("GET", f"{path}?offset={offset}&limit={limit}")

    async def change_acl(
        self, vector_db_id: str, document_id: str, acl: Sequence[str] | None
    ) -> JSON:
        """Change who may read a document, and return what was changed."""
        path = document_path(vector_db_id, document_id)
        return await self._object("PATCH", path, {"acl": None if acl is None else [*acl]})

    async def delete_document(self, vector_db_id: str, document_id: str) -> JSON:
        """Delete a document with all its chunks, and return what was deleted."""
        path = document_path(vector_db_id, document_id)
        return await self._object("DELETE", path)

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
        return await self._object("POST", "/v1/jobs", body)

    async def changed_jobs(self, batch_id: str, version: int) -> JSON:
        """Return the jobs of a batch that changed after a version: `data` and `has_more`."""
        asked = f"batch_id={quoted(batch_id)}&changed_after={version}&limit=1000"
        return await self._object("GET", f"/v1/jobs?{asked}")

    async def jobs(self, vector_db_id: str, status: str | None, limit: int) -> list[JSON]:
        """Return the newest jobs of a vector DB, on request only those in one state."""
        only = f"&status={status}" if status else ""
        asked = f"vector_db_id={quoted(vector_db_id)}&limit={limit}{only}"
        return rows_of(await self._transport.call("GET", f"/v1/jobs?{asked}"))

    async def cancel_jobs(self, batch_id: str) -> None:
        """Cancel what of a batch is not finished."""
        await self._transport.call("POST", "/v1/jobs/cancel", {"batch_id": batch_id})

    async def change_jobs(self, vector_db_id: str, change: str) -> int:
        """Cancel or retry all jobs of a vector DB that can be, and return how many."""
        reply = await self._transport.call(
            "POST", f"/v1/jobs/{change}", {"vector_db_id": vector_db_id}
        )
        return int(object_of(reply)["count"])

    async def limits(self) -> JSON:
        """Return what the operator allows: `server` of a request, `document` of a document."""
        return await self._object("GET", "/v1/limits")

    async def ask(self, vector_db_id: str, question: str, query_config: JSON) -> JSON:
        """Ask the RAG tool and return its reply: `content` and `metadata`."""
        body = {
            "content": question,
            "vector_db_ids": [vector_db_id],
            "query_config": {k: v for k, v in query_config.items() if v is not None},
        }
        return await self._object("POST", "/v1/tool-runtime/rag-tool/query", body)

    async def models(self) -> list[JSON]:
        """Return the embedding models that can be registered."""
        found = rows_of(await self._transport.call("GET", "/v1/models"))
        return [model for model in found if model.get("model_type") == "embedding"]

    async def providers(self) -> JSON:
        """Return the reply of `/v1/providers`: the configured providers with their health."""
        return await self._object("GET", "/v1/providers")

    async def _object(self, method: str, path: str, body: JSON | None = None) -> JSON:
        """Send a request and return the reply, which must be an object."""
        return object_of(await self._transport.call(method, path, body))

    async def _default_model(self) -> str:
        models = await self.models()
        if not models:
            raise CommandError("No embedding model is configured.", hint=await self._why_no_model())
        marked = [m for m in models if (m.get("metadata") or {}).get("default")]
        return str((marked or models)[0]["identifier"])

    async def _why_no_model(self) -> str:
        """Return what the embedding providers say is wrong."""
        configured = (await self.providers()).get("data") or []
        embedding = [one for one in configured if one.get("kind") == "embedding"]
        said = [(one.get("health") or {}).get("message") for one in embedding]
        return " ".join(filter(None, said)) or "Configure one: providers.embedding in run.yaml."


async def _restored(
    stack: Stack,
    file: BinaryIO,
    advance: Callable[[int, int], object],
    asked: dict[str, str | None],
) -> JSON:
    """Make a vector DB of a snapshot in this process; returns as `Client.restore`."""
    from corral.providers.copying.snapshots import restore  # noqa: PLC0415 - start-up time

    size, told = os.fstat(file.fileno()).st_size, 0

    def stored(chunks: int, total: int) -> None:
        nonlocal told
        advance(0, size * chunks // total - told)
        told = size * chunks // total

    done = await restore(stack, file, progress=stored, **asked)
    shown = done.vector_db.model_dump(mode="json")
    return {"vector_db": shown, "chunks": done.chunks, "notes": list(done.notes)}


def _text_item(content: Any) -> Any:
    """Return a text as an item: a plain string of one address would be fetched."""
    return {"type": "text", "text": content} if isinstance(content, str) else content
