"""Check and raise the schema versions of Corral's SQLite files.

`user_version` is the version of a file; a new file has 0. Step n, counted from 0, upgrades from
version n to n + 1, so the newest version is the number of steps. Released steps never change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import apsw

from corral.api.errors import ConfigError

Step: TypeAlias = str | Callable[[apsw.Connection], None]
"""SQL statements, or a function that runs some."""


def check_version(connection: apsw.Connection, newest: int, name: str) -> int:
    """Return the schema version of a file; 0 for a new one. Changes nothing.

    Args:
        newest: The version that this Corral writes.
        name: Name of the file, for the error.

    Raises:
        ConfigError: The file has a newer version.
    """
    version = int(str(connection.pragma("user_version")))
    if version > newest:
        raise ConfigError(
            f"{name} has schema version {version}; this Corral reads up to {newest}.",
            hint="Upgrade Corral, or use another data folder.",
        )
    return version


def upgrade(connection: apsw.Connection, steps: Sequence[Step], name: str) -> None:
    """Run the steps that a file lacks, in a write transaction of the caller.

    Raises:
        ConfigError: The file has a newer version, perhaps since another process opened it.
    """
    version = check_version(connection, len(steps), name)
    for step in steps[version:]:
        if isinstance(step, str):
            connection.execute(step).fetchall()
        else:
            step(connection)
    if version < len(steps):
        connection.execute(f"PRAGMA user_version={len(steps)}")
