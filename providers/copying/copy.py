"""Copy a vector DB to another backend: chunks, embeddings and settings, without embedding again.

A copy goes through the source's ids in order. For each batch it reads both sides, and writes the
chunks that the target lacks or that differ there. So a step may be repeated, and an interrupted
copy can simply be started again; it skips finished chunks.

Concurrent writes to the source are copied if their ids come after the current one: the ids are
listed again when the number of chunks changes. (It does not change if as many chunks are deleted as
added between two steps.) A chunk added before the current id is missing in the target, and a chunk
deleted there stays in it. `verify_copy` reports both, and copying again adds the missing chunks. A
copy never deletes; `verify_copy` names the chunks that only the target has.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, InvalidRequest
from corral.api.provider import Api, Capabilities
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.copying.copy_checks import CopyChecks, compare
from corral.providers.copying.snapshot_file import SETTINGS
from corral.providers.stack.copy_steps import (
    MAX_BATCH,
    WRITTEN_AT_ONCE,
    CopyStep,
    batch_size,
    copy_step,
)
from corral.providers.stack.expiry import schedule
from corral.providers.stack.registry import find_spec
from corral.providers.stack.stack import Stack


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy.

    Attributes:
        seen: Number of chunks read from the source.
        copied: Number of chunks written to the target.
        seconds: Duration of the copy.
        checks: The comparison of the copy with its source.
    """

    seen: int
    copied: int
    seconds: float
    checks: CopyChecks


async def copy_vector_db(
    stack: Stack,
    source_id: str,
    target_id: str,
    *,
    provider_id: str | None = None,
    batch: int | None = None,
) -> CopyReport:
    """Copy a vector DB step by step, verify the copy, and return a report.

    Args:
        stack: The stack with both vector DBs.
        source_id: The vector DB to copy.
        target_id: The copy; registered if it does not exist.
        provider_id: Provider of the copy; None for the source's provider.
        batch: Chunks per step, 1 to 10,000; None for `batch_size`.

    Raises:
        NotFound, InvalidRequest, Conflict, ProviderError: See `copy_batch` and `verify_copy`.
    """
    started = time.monotonic()
    if batch is None:
        batch = batch_size(await (await stack.index(source_id)).count())
    seen = copied = 0
    after, done = "", False
    while not done:
        step = await copy_batch(
            stack, source_id, target_id, provider_id=provider_id, after=after, limit=batch
        )
        seen, copied = seen + step.seen, copied + step.copied
        after, done = step.last_id, step.done
    checks = await verify_copy(stack, source_id, target_id)
    return CopyReport(seen, copied, time.monotonic() - started, checks)


async def copy_batch(
    stack: Stack,
    source_id: str,
    target_id: str,
    *,
    provider_id: str | None = None,
    after: str = "",
    limit: int = WRITTEN_AT_ONCE,
) -> CopyStep:
    """Copy the next chunks by id; the first step creates the target.

    The target becomes visible after its first step.

    Args:
        stack, source_id, target_id, provider_id: As for `copy_vector_db`.
        after: The id to start after; "" for the first step.
        limit: Number of chunks in the step, 1 to 10,000.

    Raises:
        NotFound: The source or, after the first step, the target does not exist.
        InvalidRequest: Source and target are the same, the limit is invalid, or the provider does
            not support the target's settings.
        UnknownProvider: The provider is not configured.
        Forbidden: An ACL has tokens that the principal does not hold.
        Conflict: The target has other settings; the message names them.
        ProviderError: A backend failed. The step can be repeated; a failed first step leaves
            nothing behind.
    """
    if not 1 <= limit <= MAX_BATCH:
        raise InvalidRequest(f"limit must be from 1 to {MAX_BATCH} (got {limit}).", field="limit")
    source = await stack.index(source_id)
    steps: list[CopyStep] = []

    async def step(target: EmbeddingIndex) -> None:
        note = partial(schedule, stack, target.vector_db)
        steps.append(await copy_step(source, target, after, limit, note=note))

    if not after and not await stack.registered([target_id]):
        asked = _like(source.vector_db, target_id, provider_id)
        try:
            await stack.register(
                asked,
                fingerprint=source.vector_db.fingerprint,
                fill=lambda index: step(index.scoped_to(stack.principal)),
            )
        except Conflict:
            if not await stack.registered([target_id]):
                raise
            steps.clear()  # Another process has created the target first; use that one.
    if not steps:
        _check_settings(source.vector_db, await stack.vector_db(target_id), provider_id)
        await step(await stack.index(target_id))
    return steps[0]


async def verify_copy(stack: Stack, source_id: str, target_id: str) -> CopyChecks:
    """Compare a copy with its source and return the result.

    The settings, the numbers of chunks and all ids are compared. For a sample of chunks, the stored
    data is compared too, and the answers to two queries: by the embedding of the chunk, and by
    words of its text. They must have the same ids in the same order, except for hits with scores
    that are equal up to rounding. If one side searches vectors approximately, only the share of
    common hits is compared.

    Raises:
        NotFound: One of the vector DBs does not exist.
        Conflict: The copy differs from the source; the message lists the differences.
        ProviderError: A backend failed.
    """
    vector_dbs = await stack.vector_db(source_id), await stack.vector_db(target_id)
    _check_settings(*vector_dbs, None)
    source, target = await stack.index(source_id), await stack.index(target_id)
    able = [_capabilities(stack, one) for one in vector_dbs]
    searchers = [await source.searcher_state(), await target.searcher_state()]
    modes = set(able[0].modes) & set(able[1].modes)
    checks = await compare(
        source,
        target,
        # In a partially visible source, word frequencies still count hidden chunks.
        modes=modes if stack.principal.reads_all else modes - {"keyword"},
        exact=all(one.exact for one in able)
        and all(one is None or one.is_exact for one in searchers),
    )
    if checks.differences:
        raise Conflict(
            f"{target_id!r} is not a copy of {source_id!r}: {' '.join(checks.differences)}",
            hint="If others wrote to the source meanwhile, copy again: that adds what is "
            "missing, but deletes nothing. A provider configured with another keyword ranking "
            "always differs.",
            field="target_id",
        )
    return checks


# --- the target -----------------------------------------------------------------------------------


def _like(source: VectorDB, target_id: str, provider_id: str | None) -> VectorDBRegistration:
    """Return the registration of a copy."""
    settings = source.model_dump(include={*SETTINGS, "vector_db_name"})
    chosen = {"vector_db_id": target_id, "provider_id": provider_id or source.provider_id}
    return VectorDBRegistration.model_validate({**settings, **chosen})


def _check_settings(source: VectorDB, target: VectorDB, provider_id: str | None) -> None:
    if source.identifier == target.identifier:
        raise InvalidRequest("Source and target are the same.", field="target_id")
    differing = [name for name in SETTINGS if getattr(source, name) != getattr(target, name)]
    made_by = {source.fingerprint, target.fingerprint} - {None}
    if len(made_by) > 1:
        differing.append("fingerprint")
    if provider_id not in (None, target.provider_id):
        differing.append("provider_id")
    if differing:
        raise Conflict(
            f"Vector DB {target.identifier!r} is registered with another {', '.join(differing)}.",
            hint="Copy to a new id, or delete that vector DB first.",
            field="target_id",
        )


def _capabilities(stack: Stack, vector_db: VectorDB) -> Capabilities:
    entries = stack.config.providers.of(Api.VECTOR_IO)
    [entry] = [one for one in entries if one.provider_id == vector_db.provider_id]
    return find_spec(Api.VECTOR_IO, entry.provider_type).capabilities
