"""Names of stored data: derived from a registration, recognized by their format."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from corral.api.provider import Orphan, Registered
from corral.api.vector_dbs import VectorDB


def stored_name(vector_db: VectorDB, prefix: str = "") -> str:
    """Return the name of a vector DB's collection, file or folder.

    The prefix, the 32 hex digits of the installation, and 14 characters of a hash, 54 characters
    with a prefix of 7: PostgreSQL cuts names at 63, and Corral appends up to 9 (RFC 0014). Data
    from before installations had ids has the prefix and 40 hex digits.

    The id is hashed, so that any id gives a valid name, none is a path, and different ids never
    share a name. The hash includes the start time of the index build: an id that is registered
    again, or rebuilt, gets a new name, and a process that still has the old data open cannot touch
    the new data. It also includes the tenant, if any: two tenants may register the same id at the
    same time.
    """
    parts = [repr(vector_db.built_at), *filter(None, vector_db.key)]
    key = "\0".join(parts).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(key)
    if not vector_db.installation:
        return f"{prefix}{digest.hexdigest()[:40]}"
    letters = base64.b32encode(digest.digest()).decode().lower()
    return f"{prefix}{vector_db.installation}_{letters[:14]}"


def provider_folder(provider_id: str, kind: str, home: Path) -> Path:
    """Return a provider's default folder; the id is hashed, so that it is never a path."""
    return home / kind / hashlib.sha256(provider_id.encode()).hexdigest()[:16]


async def strays(
    names: Iterable[str],
    registered: Registered,
    drop: Callable[[str], Awaitable[None]],
    name_of: Callable[[VectorDB], str] = stored_name,
    prefix: str = "",
) -> list[Orphan]:
    """Return the data that Corral made and that belongs to no registered vector DB, by name.

    Args:
        names: All names in the engine, read before this call. A name that does not have the format
            of `stored_name` is not Corral's and is skipped.
        registered: Called after `names` were read, so that a vector DB that was registered in
            between is not reported as a stray.
        drop: Deletes the data of a name.
        name_of: Returns the name of a vector DB's data.
        prefix: Prefix of this provider's names.
    """
    form = re.compile(re.escape(prefix) + "(?:[0-9a-f]{40}|([0-9a-f]{32})_[a-z2-7]{14})")
    held = {name_of(vector_db) for vector_db in await registered()}
    made = {name: form.fullmatch(name) for name in sorted({*names} - held)}
    return [
        Orphan(name, partial(drop, name), installation=match[1] or "")
        for name, match in made.items()
        if match
    ]
