"""Copying a vector DB to another backend: chunks, embeddings, settings; nothing is embedded again.

A copy goes through the source's ids in order. Of each batch it reads both sides, and writes to the
target what is missing there or differs. So a step may be repeated, and a copy that was interrupted
is simply started again: it passes over what is done.

While others write to the source, a chunk that they add or change ahead of the copy comes along,
since ids are listed again when the number of chunks has changed; added where as many were deleted
between two steps, it may not. One added behind the copy does not come along, and one that they
delete behind it stays in the target. `verify_copy` tells, and the same copy again brings the rest.
It never deletes: what only the target holds is named instead.
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
    """A finished copy: chunks gone through, chunks written, seconds, and its verification."""

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
    """Copy a vector DB step by step, verify the copy, and return what was done.

    Args:
        stack: Where both are.
        source_id: The vector DB to copy.
        target_id: The copy; registered if it does not exist.
        provider_id: Where to register it; None for the source's own provider.
        batch: Chunks of a step, 1 to 10,000; None as `batch_size` says.

    Raises:
        NotFound, InvalidRequest, Conflict, ProviderError: As `copy_batch` and `verify_copy` say.
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
    """Copy the next chunks by id and say where to go on; the first step makes the target.

    Nobody sees the target before its first step is done.

    Args:
        stack, source_id, target_id, provider_id: As `copy_vector_db` takes them.
        after: The id after which to begin; "" for the first step.
        limit: Chunks to go through, 1 to 10,000.

    Raises:
        NotFound: No such source; or, after the first step, no such target.
        InvalidRequest: Both are the same, a bad limit, or the provider cannot hold the target.
        UnknownProvider: There is no such provider.
        Forbidden: An acl holds tokens that the principal does not.
        Conflict: The target has other settings; the message names them.
        ProviderError: A backend failed. The step can be repeated; of a first one nothing is left.
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
            steps.clear()  # another process was faster, and the filled index is gone
    if not steps:
        _check_settings(source.vector_db, await stack.vector_db(target_id), provider_id)
        await step(await stack.index(target_id))
    return steps[0]


async def verify_copy(stack: Stack, source_id: str, target_id: str) -> CopyChecks:
    """Compare a copy with its source and return what was compared.

    Compared are the settings, the numbers of chunks and all their ids; and for a sample of chunks
    all that is stored of them, the answers to a vector query by their own embedding, and those to a
    keyword query by words of their text: the same ids in the same order, except for hits whose
    scores differ by rounding. Where one side searches vectors approximately, the share of common
    hits is measured instead.

    Raises:
        NotFound: One of them does not exist.
        Conflict: They differ; the message says in what.
        ProviderError: A backend failed.
    """
    vector_dbs = await stack.vector_db(source_id), await stack.vector_db(target_id)
    _check_settings(*vector_dbs, None)
    source, target = await stack.index(source_id), await stack.index(target_id)
    able = [_capabilities(stack, one) for one in vector_dbs]
    modes = set(able[0].modes) & set(able[1].modes)
    checks = await compare(
        source,
        target,
        # Of a source that is seen in part, words are as rare as in the whole of it.
        modes=modes if stack.principal.reads_all else modes - {"keyword"},
        exact=all(one.exact for one in able),
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
