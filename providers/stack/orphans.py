"""Orphans: data without a registration, left by a process that was killed between making an index
and registering it. Every configured provider is searched; orphans are removed on request.

Several installations may share an engine. Data of another installation is listed separately with
its id, and removed only if the request names that id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from corral.api.errors import Conflict, CorralError, NotFound
from corral.api.provider import Api, Orphan
from corral.providers.base.config import ProviderEntry
from corral.providers.stack.stack import Stack

UNKNOWN = "unknown"
"""The name, in requests, of the installation of data that records no id."""


@dataclass(frozen=True, slots=True)
class ProviderOrphans:
    """The orphans of one provider, or the error if it could not be searched.

    Attributes:
        entry: The provider's configuration.
        orphans: Orphans of this installation.
        others: Data of other or unknown installations, which may use it.
        failure: Error message; "" if the search succeeded.
    """

    entry: ProviderEntry
    orphans: list[Orphan]
    others: list[Orphan]
    failure: str = ""


async def find_orphans(stack: Stack) -> list[ProviderOrphans]:
    """Return the orphans of each vector_io provider, searched concurrently."""
    entries = stack.config.providers.of(Api.VECTOR_IO)
    return list(await asyncio.gather(*(_look(stack, entry) for entry in entries)))


async def remove_orphans(
    stack: Stack, names: Sequence[tuple[str, str]], installation: str | None = None
) -> None:
    """Delete orphans by provider id and name, after searching again. One process does so at a time.

    Args:
        names: Pairs of provider id and orphan name.
        installation: Id of the installation that made them, or `UNKNOWN`; None: this one.

    Raises:
        NotFound: A name is not, or no longer, an orphan; nothing is deleted.
        Conflict: An orphan was made by another installation, or another process deletes orphans;
            nothing is deleted.
        ProviderError: An engine failed; the orphans before it are deleted.
    """
    remove = partial(_remove, stack, names, installation or await stack.installation())
    await stack.claims.result("prune", remove, "deletes orphans")


async def _remove(stack: Stack, names: Sequence[tuple[str, str]], wanted: str) -> None:
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
