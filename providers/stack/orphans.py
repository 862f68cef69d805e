"""Data that no registration holds: what a process leaves that is killed between making an index
and registering it. It is found in every configured provider, and removed on request.

Several installations may share an engine. What another one has made there is listed with its id,
never mixed up with one's own, and removed only if that id is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from corral.api.errors import Conflict, CorralError, NotFound
from corral.api.provider import Api, Orphan
from corral.providers.base.config import ProviderEntry
from corral.providers.stack.stack import Stack

UNKNOWN = "unknown"
"""The name, in requests, of the installation of data that records no id."""


@dataclass(frozen=True, slots=True)
class ProviderOrphans:
    """What one provider holds, or why it could not be asked.

    Attributes:
        orphans: Made by this installation.
        others: Made by other installations, or by one that is unknown; may be in use there.
    """

    entry: ProviderEntry
    orphans: list[Orphan]
    others: list[Orphan]
    failure: str = ""


async def find_orphans(stack: Stack) -> list[ProviderOrphans]:
    """Return what each vector_io provider holds for no registration, all asked at once."""
    entries = stack.config.providers.of(Api.VECTOR_IO)
    return list(await asyncio.gather(*(_look(stack, entry) for entry in entries)))


async def remove_orphans(
    stack: Stack, names: Sequence[tuple[str, str]], installation: str | None = None
) -> None:
    """Delete orphans by provider id and name, after looking again.

    Args:
        installation: Id of the installation that made them, or `UNKNOWN`; None: this one.

    Raises:
        NotFound: One is no orphan, or not any more; nothing is deleted.
        Conflict: One was made by another installation than that; nothing is deleted.
        ProviderError: An engine failed; those before it are deleted.
    """
    wanted = installation or await stack.installation()
    provider_ids = dict.fromkeys(provider_id for provider_id, _ in names)
    held = {provider_id: await stack.orphans(provider_id) for provider_id in provider_ids}
    known = {(p, orphan.name): orphan for p, orphans in held.items() for orphan in orphans}
    for provider_id, name in names:
        orphan = known.get((provider_id, name))
        if orphan is None:
            raise NotFound(
                f"{provider_id} has no orphan {name!r}.",
                hint="List them: corral dbs list --orphans.",
                field="orphans",
            )
        owner = orphan.installation or UNKNOWN
        if owner != wanted:
            raise Conflict(
                f"{name!r} in {provider_id} belongs to installation {owner}, not to {wanted}.",
                hint="That installation may still use it. If not: corral dbs prune --installation "
                f"{owner}.",
                field="installation",
            )
    for one in dict.fromkeys(names):
        await known[one].drop()


async def _look(stack: Stack, entry: ProviderEntry) -> ProviderOrphans:
    try:
        mine = await stack.installation()
        found = await stack.orphans(entry.provider_id)
    except CorralError as error:
        return ProviderOrphans(entry, [], [], str(error))
    own = [orphan for orphan in found if orphan.installation == mine]
    return ProviderOrphans(entry, own, [orphan for orphan in found if orphan not in own])
