"""Write-ahead logging for Corral's SQLite files, which several processes may open at once."""

from __future__ import annotations

import time

import apsw

PAUSE_SECONDS = 0.01


def use_wal(connection: apsw.Connection, timeout_seconds: float) -> None:
    """Set WAL mode, which lets readers and a writer of several processes run concurrently.

    The first processes that open a new file all try to set it. SQLite ignores the busy timeout for
    this lock, because two processes that wait for each other would deadlock; so this function
    retries. For a file already in WAL mode, it costs nothing.

    Args:
        connection: A connection outside of a transaction.
        timeout_seconds: Maximum wait for other processes, >= 0.

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
