"""Rebuilding a vector DB with another model, language or field weights, while it is in use.

A second index is built in the steps of a copy (`copy_steps.py`), with new embeddings if the model
changes. It replaces the first index in one transaction of the registry. The first index answers
queries until then.

No write is lost; see `rebuild_writes.py`.

To resume a killed rebuild, begin it again: its steps skip the chunks that are done.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from corral.api.documents import READ_CHUNKS
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, CorralError, InvalidRequest, NotFound, Unavailable
from corral.api.library import Library
from corral.api.provider import VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.storing import embeddings_of
from corral.providers.stack.copy_steps import CopyStep, Embed, copy_chunks, copy_step, id_pages
from corral.providers.stack.open_indexes import OpenIndexes
from corral.providers.stack.rebuild_table import Rebuild, RebuildTable
from corral.providers.stack.registrations import REBUILD_SETTINGS, with_settings
from corral.providers.stack.vector_db_table import Key, VectorDBTable
from corral.providers.state.claims import Claims

MOST_LEFT = 10_000
"""Maximum number of missing chunks at the switch; the steps must have copied the rest."""
CLOSED_SECONDS = 10.0
"""Maximum time that writers wait for the switch, so that it can catch up with them."""

_ROUNDS = 100

T = TypeVar("T")

Bring: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Copies chunks to the new index."""


@dataclass(frozen=True, slots=True)
class Switched:
    """A finished rebuild.

    Attributes:
        vector_db: The new registration.
        note: A sentence about data that could not be deleted; "" if none.
    """

    vector_db: VectorDB
    note: str = ""


class Rebuilding:
    """The rebuilds of one process.

    Args:
        library: Returns the embedders.
        registry: The registrations of vector DBs.
        table: The rebuilds in progress.
        open_indexes: The open indexes of this process.
        provider: Returns a vector_io provider by its id.
        claims: One process at a time works on a rebuild.
    """

    def __init__(
        self,
        library: Library,
        registry: VectorDBTable,
        table: RebuildTable,
        open_indexes: OpenIndexes,
        provider: Callable[[str], VectorIOProvider],
        claims: Claims,
    ) -> None:
        self._library, self._registry, self._open = library, registry, open_indexes
        self._table, self._claims = table, claims
        self._provider = provider
        self._targets: dict[Key, EmbeddingIndex] = {}
        self._lock: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    # --- the steps of a rebuild --------------------------------------------------------------

    async def begin(self, vector_db: VectorDB, settings: Mapping[str, Any]) -> Rebuild | None:
        """Begin a rebuild, or resume a rebuild with the same settings.

        Args:
            settings: Some of `REBUILD_SETTINGS`. Naming the registered model means its current
                configuration, which may differ from the one that made the stored embeddings.

        Returns:
            The rebuild; None if nothing would change.

        Raises:
            NotFound: No configured provider serves the model.
            InvalidRequest: A rebuild cannot change a setting, or the index is an attached table.
            Conflict: The vector DB is being rebuilt with other settings.
            ProviderError: The backend failed.
        """
        async with self._lock[vector_db.key]:
            changes = await self._changes(vector_db, settings)
            found = await self._table.find(vector_db)
            if found is None and not changes:
                return None
            if found is None:
                now = {**changes, "rebuilt_at": time.time()}
                found = await self._table.begin(Rebuild(vector_db.key, vector_db.created_at, now))
            _check_same(found, changes, vector_db.identifier)
            await self._sides(found)
            return found

    async def find(self, vector_db: VectorDB) -> Rebuild | None:
        """Return the running rebuild of a vector DB, or None."""
        return await self._table.find(vector_db)

    async def step(self, vector_db: VectorDB, after: str, limit: int) -> CopyStep:
        """Build the next chunks by id; a step may be repeated.

        Args:
            after: The id to start after; "" starts at the first chunk.
            limit: Number of chunks in the step.

        Raises:
            Conflict: It is not being rebuilt, the model has changed since the start, or another
                process works on the rebuild.
            ProviderError: An engine or the embedder failed; the chunks built so far stay.
        """

        async def copied() -> CopyStep:
            rebuild = await self._rebuild(vector_db)
            source, target = await self._sides(rebuild)
            embed = self._embed(rebuild, target.vector_db)
            return await copy_step(source, target, after, limit, embed=embed)

        return await self._alone(vector_db, copied)

    async def switch(self, vector_db: VectorDB) -> Switched:
        """Replace the old index by the new index, and delete the old index.

        Raises:
            Conflict: It is not being rebuilt, its steps are not done, or another process works on
                the rebuild.
            Unavailable: Writes arrived faster than they could be replayed; nothing was changed.
            ProviderError: An engine or the embedder failed; the old index still serves.
        """

        async def switched() -> Switched:
            rebuild = await self._rebuild(vector_db)
            source, target = await self._sides(rebuild)
            bring = partial(self._bring, rebuild, source, target)
            await self._carry_over(rebuild, bring)
            await self._bring_missing(source, target, bring)
            try:
                changed = await self._switched(rebuild, target, bring)
            except BaseException:
                await self._table.let_wait(rebuild, until=0.0)
                raise
            self._targets.pop(vector_db.key, None)
            return Switched(changed, await _dropped(source))

        return await self._alone(vector_db, switched)

    async def abandon(self, vector_db: VectorDB) -> None:
        """Cancel a rebuild and delete its new index.

        Raises:
            Conflict: It is not being rebuilt, or another process works on the rebuild.
            ProviderError: The engine failed; the rebuild still exists.
        """

        async def abandoned() -> None:
            await self._drop(await self._rebuild(vector_db))

        await self._alone(vector_db, abandoned)

    async def forget(self, vector_db: VectorDB) -> None:
        """Delete the new index, if any, of a vector DB that will be deleted."""
        async with self._lock[vector_db.key]:
            rebuild = await self._table.find(vector_db)
            if rebuild is not None:
                await self._drop(rebuild)

    async def targets(self) -> list[VectorDB]:
        """Return the registrations of the indexes that are being built."""
        found = [(r, await self._registry.find(*r.key)) for r in await self._table.all()]
        return [rebuild.target(stored) for rebuild, stored in found if stored is not None]

    async def close(self) -> None:
        """Close the indexes that are being built; their data stays."""
        for index in self._targets.values():
            await index.close()

    # --- inside ------------------------------------------------------------------------------

    async def _alone(self, vector_db: VectorDB, work: Callable[[], Awaitable[T]]) -> T:
        """Work on a rebuild, unless another process does."""
        task = f"rebuild {json.dumps(vector_db.key)}"
        async with self._lock[vector_db.key]:
            return await self._claims.result(task, work, "rebuilds this vector DB")

    async def _changes(self, stored: VectorDB, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the registration that a rebuild with these settings changes."""
        unknown = sorted(settings.keys() - REBUILD_SETTINGS)
        if unknown:
            raise InvalidRequest(
                f"{unknown[0]} cannot be changed by a rebuild.",
                hint=f"These can: {', '.join(sorted(REBUILD_SETTINGS))}.",
                field=unknown[0],
            )
        self._check_ours(stored)
        wanted = dict(settings)
        if "embedding_model" in settings:
            embedder = await self._library.embedder(settings["embedding_model"])
            wanted["embedding_dimension"] = embedder.info.dimension
            wanted["fingerprint"] = embedder.fingerprint
        changed = with_settings(stored, wanted).model_dump(mode="json", include=set(wanted))
        before = stored.model_dump(mode="json")
        return {name: value for name, value in changed.items() if value != before[name]}

    def _check_ours(self, stored: VectorDB) -> None:
        attached = self._provider(stored.provider_id).resources()
        if {stored.provider_resource_id, stored.identifier}.intersection(attached):
            raise InvalidRequest(
                f"Vector DB {stored.identifier!r} is attached to a table, which Corral only reads.",
                hint="Copy it to a vector DB of its own: corral copy.",
                field="vector_db_id",
            )

    async def _rebuild(self, vector_db: VectorDB) -> Rebuild:
        found = await self._table.find(vector_db)
        if found is None:
            raise Conflict(
                f"Vector DB {vector_db.identifier!r} is not being rebuilt.",
                hint="Start a rebuild: POST /v1/vector-dbs/{id}/rebuild, or corral reembed.",
                field="vector_db_id",
            )
        return found

    async def _sides(self, rebuild: Rebuild) -> tuple[EmbeddingIndex, EmbeddingIndex]:
        """Return the serving index and the index that is being built."""
        stored = await self._registry.get(*rebuild.key)
        target = await self._target(rebuild, stored)
        return await self._open.opened(stored), target

    async def _target(self, rebuild: Rebuild, stored: VectorDB) -> EmbeddingIndex:
        """Return the index that is being built; create it if it does not exist."""
        wanted = rebuild.target(stored)
        held = self._targets.get(rebuild.key)
        if held is None or held.vector_db.built_at != wanted.built_at:
            held = await self._provider(wanted.provider_id).open_index(wanted, create=True)
            self._targets[rebuild.key] = held
        held.reconfigure(wanted)
        return held

    def _embed(self, rebuild: Rebuild, target: VectorDB) -> Embed | None:
        return partial(embeddings_of, self._library, target) if rebuild.embeds else None

    async def _bring(
        self,
        rebuild: Rebuild,
        source: EmbeddingIndex,
        target: EmbeddingIndex,
        chunk_ids: Sequence[str],
    ) -> None:
        """Copy chunks to the target; delete those that the source no longer has."""
        embed = self._embed(rebuild, target.vector_db)
        for start in range(0, len(chunk_ids), READ_CHUNKS):
            ids = chunk_ids[start : start + READ_CHUNKS]
            await copy_chunks(source, target, ids, embed=embed)
            here = {chunk.chunk_id for chunk in await source.get_chunks(ids)}
            await target.delete_chunks([each for each in ids if each not in here])

    async def _carry_over(self, rebuild: Rebuild, bring: Bring) -> None:
        """Replay the recorded writes on the new index."""
        source, target = await self._sides(rebuild)
        while notes := await self._table.notes(rebuild, READ_CHUNKS):
            ids = [note.name for note in notes if note.kind == "chunk"]
            for document_id in (note.name for note in notes if note.kind == "document"):
                for side in (source, target):
                    ids += await side.document_chunk_ids(document_id)
            await bring(list(dict.fromkeys(ids)))
            await self._table.settle(notes)

    async def _bring_missing(
        self, source: EmbeddingIndex, target: EmbeddingIndex, bring: Bring
    ) -> None:
        """Compare all ids and copy the differences, which are few after the steps."""
        async for mine, theirs in id_pages(source, target):
            differing = sorted(set(mine).symmetric_difference(theirs))
            if len(differing) > MOST_LEFT:
                raise Conflict(
                    f"{len(differing)} chunks differ between the old index and the new one.",
                    hint="Repeat the rebuild's steps until they are done.",
                    field="vector_db_id",
                )
            await bring(differing)

    async def _switched(self, rebuild: Rebuild, target: EmbeddingIndex, bring: Bring) -> VectorDB:
        """Register the new index, and cache it in place of the old index."""
        for _ in range(_ROUNDS):
            await self._table.let_wait(rebuild, until=time.time() + CLOSED_SECONDS)
            await self._carry_over(rebuild, bring)
            async with self._open.lock[rebuild.key]:
                changed = await self._table.switch(rebuild)
                if changed is not None:
                    target.reconfigure(changed)
                    self._open.keep(target)
                    return changed
        raise Unavailable(
            "Writes came faster than they could be copied to the new index.",
            hint="Nothing was changed. Try again when there are fewer writes.",
        )

    async def _drop(self, rebuild: Rebuild) -> None:
        target = await self._target(rebuild, await self._registry.get(*rebuild.key))
        with suppress(NotFound):  # An earlier attempt ended half-way.
            await target.delete()
        self._targets.pop(rebuild.key, None)
        await self._table.forget(rebuild.key)


def _check_same(found: Rebuild, changes: Mapping[str, Any], identifier: str) -> None:
    """Raise Conflict if the running rebuild makes other changes."""
    begun = {n: v for n, v in found.changes.items() if n != "rebuilt_at"}
    differing = sorted(n for n in {*begun, *changes} if begun.get(n) != changes.get(n))
    if differing:
        raise Conflict(
            f"Vector DB {identifier!r} is being rebuilt with another {', '.join(differing)}.",
            hint=f"Finish that rebuild first, or discard it: corral reembed {identifier!r} "
            "--abandon.",
            field=differing[0],
        )


async def _dropped(index: EmbeddingIndex) -> str:
    """Delete an unused index; return a sentence if the deletion failed, else ""."""
    try:
        await index.delete()
    except NotFound:
        return ""
    except CorralError as error:
        return f"The old index could not be deleted: {error.message} corral dbs prune removes it."
    return ""
