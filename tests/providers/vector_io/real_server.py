"""Real servers on this machine, which the tests take before their stand-ins where there are any.

A server's program on PATH is started over a folder of its own, with the environment as it is, so
that the server's settings reach it. A variable names one that runs instead, or the provider's
settings for either:

    CORRAL_TEST_QDRANT="http://127.0.0.1:6333 api_key=secret"
    CORRAL_TEST_QDRANT="transport=grpc"
    CORRAL_TEST_WEAVIATE="http://127.0.0.1:8080 grpc_port=50051"
    CORRAL_TEST_OPENSEARCH="https://127.0.0.1:9200 user=admin password=secret ca_file=ca.pem"
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import httpx

Json = dict[str, Any]

_START_SECONDS = 180


class RealServer(ABC):
    """A server's process over one folder; its ports and its data stay the same.

    Attributes:
        program: Its name on PATH.
        variable: Of the environment; names a server that runs, or settings.
        ready: The path that answers once the server is up.
        config: The provider's settings for it.
    """

    program: ClassVar[str]
    variable: ClassVar[str]
    ready: ClassVar[str]
    number_of_ports: ClassVar[int]
    config: Json

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(self.number_of_ports)
        self.config = self.address() | self.settings()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def address(self) -> Json:
        """Return the provider's settings that say where the server is."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the variables that say where it listens and stores."""

    def arguments(self) -> list[str]:
        """Return the arguments of the program."""
        return []

    def user(self) -> int | None:
        """Return the id of its user and group; None for this process's."""
        return None

    @classmethod
    def found(cls) -> str | None:
        """Return the path of the program; None where there is none."""
        return shutil.which(cls.program)

    @classmethod
    def running(cls) -> str | None:
        """Return the address of a server that the environment names; None for none."""
        words = [one for one in os.environ.get(cls.variable, "").split() if "://" in one]
        return words[0] if words else None

    @classmethod
    def settings(cls) -> Json:
        """Return the provider's settings that the environment names."""
        words = os.environ.get(cls.variable, "").split()
        return dict(one.split("=", 1) for one in words if "://" not in one)

    def launch(self) -> None:
        """Start its process."""
        program = self.found()
        assert program is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [program, *self.arguments()],
            cwd=self.folder,
            env=os.environ | self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self.user(),
            group=self.user(),
            extra_groups=None if self.user() is None else [],
        )

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        url = self.config["url"]
        with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=1) as client:
            while time.monotonic() < deadline:
                assert self._process.poll() is None, f"{self.program} ended"
                try:
                    client.get(self.ready).raise_for_status()
                    return
                except httpx.HTTPError:
                    time.sleep(0.05)
        raise TimeoutError(f"{self.program} does not answer")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    def freeze(self) -> None:
        """Stop it for a while; it neither answers nor hangs up once this returns."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # One thread takes the signal; until a busy machine lets it, the others go on answering.
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def running(
    server: type[RealServer], stand_in: Callable[[], AbstractContextManager[Json]]
) -> Iterator[Json]:
    """Lend the settings of the server at hand: one that runs, one of a program, or a stand-in."""
    if url := server.running():
        yield {"url": url} | server.settings()
    elif server.found():
        with started(server) as own:
            yield own.config
    else:
        with stand_in() as settings:
            yield settings


@contextmanager
def started(server: type[RealServer]) -> Iterator[RealServer]:
    """Run a server over a folder that is removed afterwards."""
    with folder_in_memory() as folder:
        own = server(folder)
        try:
            own.launch()
            own.wait()
            yield own
        finally:
            own.kill()


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Lend a folder in memory where there is one: servers wait for the disk at each write."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def free_ports(number: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nobody listens."""
    with ExitStack() as probes:
        found = [probes.enter_context(socket.socket()) for _ in range(number)]
        for probe in found:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in found]
