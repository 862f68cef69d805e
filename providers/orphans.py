"""Data that no registration holds: what a process leaves that is killed between making an index
and registering it. It is found in every configured provider, and removed on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from corral.api.errors import CorralError, NotFound
from corral.api.provider import Api, Orphan
from corral.providers.config import ProviderEntry
from corral.providers.stack import Stack


@dataclass(frozen=True, slots=True)
class ProviderOrphans:
    """What was found at one provider, or why it could not be asked."""

    entry: ProviderEntry
    orphans: list[Orphan]
    failure: str = ""


async def find_orphans(stack: Stack) -> list[ProviderOrphans]:
    """Return what each vector_io provider holds for no registration, all asked at once."""
    entries = stack.config.providers.of(Api.VECTOR_IO)
    return list(await asyncio.gather(*(_look(stack, entry) for entry in entries)))


async def remove_orphans(stack: Stack, names: Sequence[tuple[str, str]]) -> None:
    """Delete orphans by provider id and name, after looking again.

    Raises:
        NotFound: One is no orphan, or not any more; nothing is deleted.
        ProviderError: An engine failed; those before it are deleted.
    """
    held = {provider_id: await stack.orphans(provider_id) for provider_id, _ in names}
    known = {(p, orphan.name): orphan for p, orphans in held.items() for orphan in orphans}
    for provider_id, name in names:
        if (provider_id, name) not in known:
            raise NotFound(
                f"{provider_id} has no orphan {name!r}.",
                hint="List them: corral dbs list --orphans.",
                field="orphans",
            )
    for one in dict.fromkeys(names):
        await known[one].drop()


async def _look(stack: Stack, entry: ProviderEntry) -> ProviderOrphans:
    try:
        return ProviderOrphans(entry, await stack.orphans(entry.provider_id))
    except CorralError as error:
        return ProviderOrphans(entry, [], str(error))
