"""The names of what providers store: made from a registration, recognized by their form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from corral.api.provider import Registered
from corral.api.vector_dbs import VectorDB


def stored_name(vector_db: VectorDB, prefix: str = "") -> str:
    """Return the name of a vector DB's collection, file or folder: the prefix and 40 hex digits.

    The id is hashed, so that any id is a usable name, none is a path, and different ids never
    share one. The time at which its index was begun is hashed with it: an id that is registered
    anew, or rebuilt, gets a new name, and a process that still holds the old data cannot touch the
    new. So is the tenant,
    where there is one: two may register the same id at the same time.
    """
    parts = [repr(vector_db.built_at), *filter(None, vector_db.key)]
    key = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"{prefix}{hashlib.sha256(key).hexdigest()[:40]}"


def provider_folder(provider_id: str, kind: str, home: Path) -> Path:
    """Return the folder of a provider whose operator named none; no id is a path."""
    return home / kind / hashlib.sha256(provider_id.encode()).hexdigest()[:16]


async def strays(
    names: Iterable[str],
    registered: Registered,
    name_of: Callable[[VectorDB], str] = stored_name,
    prefix: str = "",
) -> list[str]:
    """Return the names that Corral made and that belong to no registered vector DB, in order.

    Args:
        names: What the engine holds, read before this call. Anything that is not the prefix and 40
            hex digits is someone else's and passed over.
        registered: Called now, so that what was registered meanwhile is not taken for a stray.
        name_of: Returns the name of a vector DB's data.
        prefix: What the names of this provider begin with.
    """
    made = re.compile(re.escape(prefix) + "[0-9a-f]{40}")
    held = {name_of(vector_db) for vector_db in await registered()}
    return sorted({name for name in names if made.fullmatch(name)} - held)
