"""What an engine holds for no registration: names of Corral's own making, told by their form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from corral.api.provider import Registered
from corral.api.vector_dbs import VectorDB


async def strays(
    names: Iterable[str],
    registered: Registered,
    name_of: Callable[[VectorDB], str],
    prefix: str = "",
) -> list[str]:
    """Return the names that Corral made and that belong to no registered vector DB, in order.

    Args:
        names: What the engine holds, read before this call. Anything that is not the prefix and 40
            hex digits is someone else's and passed over.
        registered: Called now, so that what was registered meanwhile is not taken for a stray.
        name_of: The name of a vector DB's data.
        prefix: What the names of this provider begin with.
    """
    made = re.compile(re.escape(prefix) + "[0-9a-f]{40}")
    held = {name_of(vector_db) for vector_db in await registered()}
    return sorted({name for name in names if made.fullmatch(name)} - held)
