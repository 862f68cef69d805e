"""Write-ahead logging for Corral's SQLite files, which several processes may open at once."""

from __future__ import annotations

import time

import apsw

PAUSE_SECONDS = 0.01


def use_wal(connection: apsw.Connection, timeout_seconds: float) -> None:
    """Put a file into WAL mode, in which readers and a writer of several processes work at once.

    The first processes to open a new file all want to switch it. SQLite does not wait on this
    lock, whatever busy timeout is set, since two that wait for each other would never end; so the
    wait is here. A file that is in WAL mode already stays so at no cost.

    Args:
        connection: A connection outside of a transaction.
        timeout_seconds: How long to wait for others, >= 0.

    Raises:
        apsw.BusyError: Another process still holds the file.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_SECONDS)
