"""Several processes may meet in a new SQLite file."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from corral.providers.base.wal import use_wal


def reader(path: Path) -> apsw.Connection:
    """Open a connection that is in the middle of a read, as another process may be."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM t").fetchall()
    return connection


def opens(path: Path, start: threading.Barrier) -> None:
    """Open a file when all are ready, as the processes of a server do when it starts."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    start.wait()
    use_wal(connection, 10)
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
    connection.close()


def test_those_who_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    """Eight that open one new file at the same moment all get it in WAL mode, each time.

    If this fails: SQLite does not wait where two want to switch a file, whatever its timeout is.
    """
    for attempt in range(20):
        path, start = tmp_path / f"{attempt}.db", threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            for opened in [threads.submit(opens, path, start) for _ in range(8)]:
                opened.result()
        assert apsw.Connection(str(path)).pragma("journal_mode") == "wal"


def test_the_switch_waits_for_one_that_reads(tmp_path: Path) -> None:
    """One that meets a reader in a file not yet in WAL mode waits, and then goes on."""
    other = reader(tmp_path / "a.db")
    mine = apsw.Connection(str(tmp_path / "a.db"))
    end_of_the_read = threading.Timer(0.2, other.execute, ["COMMIT"])
    end_of_the_read.start()
    use_wal(mine, 60)
    end_of_the_read.join()
    assert mine.pragma("journal_mode") == "wal"


def test_the_wait_has_an_end(tmp_path: Path) -> None:
    """A file that stays in use is reported as busy."""
    other = reader(tmp_path / "a.db")
    with pytest.raises(apsw.BusyError):
        use_wal(apsw.Connection(str(tmp_path / "a.db")), 0.05)
    other.close()


def test_a_file_in_wal_mode_needs_no_wait(tmp_path: Path) -> None:
    """A reader in a file that is in WAL mode already is in nobody's way."""
    first = apsw.Connection(str(tmp_path / "a.db"))
    use_wal(first, 0)
    other = reader(tmp_path / "a.db")
    use_wal(apsw.Connection(str(tmp_path / "a.db")), 0)
    other.close()
