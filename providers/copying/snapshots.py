"""Export and import vector DBs as snapshots; `snapshot_file.py` describes the file format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import BinaryIO

from pydantic import ValidationError

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ContractViolation, InvalidRequest
from corral.api.findings import first_finding
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.copying.snapshot_file import Details, Manifest, Snapshot
from corral.providers.copying.snapshot_writer import snapshot_of
from corral.providers.stack.expiry import schedule
from corral.providers.stack.registrations import fingerprints_differ
from corral.providers.stack.stack import Stack


@dataclass(frozen=True, slots=True)
class Imported:
    """A vector DB imported from a snapshot.

    Attributes:
        chunks: Number of chunks.
        notes: Remarks for the caller.
    """

    vector_db: VectorDB
    chunks: int
    notes: tuple[str, ...] = ()


async def export(stack: Stack, vector_db_id: str) -> AsyncIterator[bytes]:
    """Yield a snapshot of a vector DB, piece by piece; see `snapshot_of`.

    Raises:
        NotFound: The vector DB does not exist.
        InvalidRequest, ProviderError: See `snapshot_of`.
    """
    index = await stack.index(vector_db_id)
    store = await stack.stores.store(index.vector_db)
    details = Details.model_validate({name: getattr(store, name) for name in Details.model_fields})
    async for piece in snapshot_of(index, details):
        yield piece


async def restore(
    stack: Stack,
    file: BinaryIO,
    *,
    vector_db_id: str | None = None,
    provider_id: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Imported:
    """Register a vector DB and fill it from a snapshot, all or nothing.

    The whole file is checked first, and the vector DB becomes visible once it has every chunk.

    Args:
        stack: The stack to import into.
        file: The snapshot, open for reading.
        vector_db_id: Id of the new vector DB; None for the id in the snapshot.
        provider_id: Provider of the new vector DB; None for the provider in the snapshot if it is
            configured here, or else the first provider.
        progress: Called with the number of stored chunks and the total.

    Raises:
        InvalidRequest: The file is not a snapshot or is damaged, or the provider or the model does
            not support the settings in it.
        Conflict: A vector DB with this id exists.
        NotFound, UnknownProvider: The embedding model or the provider is not configured here.
        ProviderError: The backend failed; nothing was imported.
    """
    snapshot = await asyncio.to_thread(Snapshot, file)
    manifest = snapshot.manifest
    registration = _registration(stack, manifest, vector_db_id, provider_id)

    files: set[str] = set()

    async def fill(index: EmbeddingIndex) -> None:
        await _fill(index, stack, snapshot, progress, files)

    vector_db = await stack.register(registration, fingerprint=manifest.fingerprint, fill=fill)
    await _describe(stack, vector_db, manifest.vector_store)
    embedder = await stack.embedder(vector_db.embedding_model)
    return Imported(vector_db, manifest.chunks, _notes(manifest, embedder.fingerprint, len(files)))


async def _fill(
    index: EmbeddingIndex,
    stack: Stack,
    snapshot: Snapshot,
    progress: Callable[[int, int], object] | None,
    files: set[str],
) -> None:
    """Store the chunks of a snapshot, verify their number, and add their file ids to `files`."""
    batches, stored, total = snapshot.batches(), 0, snapshot.manifest.chunks
    while batch := await asyncio.to_thread(next, batches, None):
        await schedule(stack, index.vector_db, batch[0])
        await index.add_chunks(*batch)
        stored += len(batch[0])
        files |= {str(c.metadata["file_id"]) for c in batch[0] if c.metadata.get("file_id")}
        if progress is not None:
            progress(stored, total)
    if await index.count() != total:
        raise ContractViolation(
            f"{index.vector_db.provider_id} does not hold as many chunks as it was given."
        )


async def _describe(stack: Stack, vector_db: VectorDB, details: Details) -> None:
    """Store the fields of the vector store; if that fails, delete the vector DB."""
    try:
        store = await stack.stores.store(vector_db)
        now = int(stack.stores.clock())
        await stack.stores.put(replace(store, **details.model_dump(), last_active_at=now))
    except BaseException:
        await stack.unregister(vector_db.identifier)
        raise


def _registration(
    stack: Stack, manifest: Manifest, vector_db_id: str | None, provider_id: str | None
) -> VectorDBRegistration:
    if provider_id is None and stack.has_vector_io(manifest.provider_id):
        provider_id = manifest.provider_id
    chosen = {
        "vector_db_id": vector_db_id or manifest.vector_db_id,
        "vector_db_name": manifest.vector_db_name,
        "provider_id": provider_id,
    }
    try:
        return VectorDBRegistration.model_validate({**manifest.settings, **chosen})
    except ValidationError as error:
        path, words = first_finding(error)
        raise InvalidRequest(
            f"The snapshot's registration cannot be used: {path}: {words}.", field="file"
        ) from None


def _notes(manifest: Manifest, now: str, files: int) -> tuple[str, ...]:
    notes = []
    if files:
        notes.append(
            f"Documents of uploaded files: {files}. Search finds them, but the vector store lists "
            "only files that are attached here; see docs/moving.md."
        )
    if manifest.changed_meanwhile:
        notes.append(
            "Chunks were added or removed while the snapshot was written: documents that were "
            "replaced meanwhile may be in it in part."
        )
    if manifest.fingerprint is not None and manifest.fingerprint != now:
        notes.append(
            "The embedding model here is not the one that made the embeddings "
            f"({fingerprints_differ(manifest.fingerprint, now)}). Embed them again: corral reembed."
        )
    return tuple(notes)
