"""Kills and freezes replicas of one installation under load, and checks that nothing is lost.

    python -m lab.replicas --rounds 20 --replicas 2

Each round starts replicas with one state in PostgreSQL, files in a bucket and vectors in pgvector.
Clients write and read through all of them in turn, while replicas get SIGKILL and SIGSTOP at
random, PostgreSQL is restarted once, and the bucket does not answer for some seconds. At the end
every acknowledged write must be there, whole and once, every job completed, and every answer a
success or a 503 with `Retry-After`. The exit code is 1 if a round has a defect.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from corral.providers.base.config import RunConfig
from corral.providers.state.opening import SCHEMA
from tests.object_storage import ObjectStorage
from tests.providers.conftest import url_of
from tests.providers.vector_io.pgvector.conftest import Server, postgresql
from tests.server.harness import ServerProcess, run_config

from .replica_load import Load, Outcome

CLIENTS = 4
MAX_STARTS = 20
STORAGE_TIMEOUT_SECONDS = 2.0
SHORT_FREEZE = (0.5, 4.0)
LONG_FREEZE = (21.0, 24.0)
"""Seconds, longer than the lease of a worker."""


class Replicas:
    """Servers of one installation, each with a data folder of its own.

    Args:
        folder: Folder of the data folders.
        config: The configuration of all.
        count: Number of servers.
    """

    def __init__(self, folder: Path, config: RunConfig, count: int) -> None:
        self._homes = [folder / f"replica-{number}" for number in range(count)]
        self._config = config
        self._servers: list[ServerProcess] = []
        for home in self._homes:
            home.mkdir(parents=True)

    def __enter__(self) -> Replicas:
        for home in self._homes:
            self._servers.append(ServerProcess(home, self._config))
        return self

    def __exit__(self, *raised: object) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGCONT)
            server.kill()

    def urls(self) -> list[str]:
        """Return the addresses, of servers that are down too."""
        return [server.url for server in self._servers]

    def kill(self, number: int) -> None:
        """Kill a server without warning."""
        self._servers[number].kill()

    def restart(self, number: int) -> None:
        """Start a server that was killed, again if PostgreSQL is away, as a supervisor does."""
        for _ in range(MAX_STARTS):
            try:
                self._servers[number] = ServerProcess(self._homes[number], self._config)
            except AssertionError:  # it ended
                time.sleep(1)
            else:
                return
        raise TimeoutError

    def freeze(self, number: int) -> None:
        """Stop a server's clock."""
        self._servers[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen server go on."""
        self._servers[number].send_signal(signal.SIGCONT)


class Chaos:
    """Faults at random times; one replica of several always works."""

    def __init__(
        self, replicas: Replicas, count: int, database: Server, storage: ObjectStorage, seed: int
    ) -> None:
        self._replicas = replicas
        self._count = count
        self._database = database
        self._storage = storage
        self._random = random.Random(seed)
        self._may_fail = asyncio.Semaphore(max(1, count - 1))
        self.done: list[str] = []

    async def run(self, seconds: float, longest: tuple[float, float]) -> None:
        """Cause faults for a time; at the end everything runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restart_database(seconds))
            group.create_task(self._silence_storage(seconds))
            for number in range(self._count):
                group.create_task(self._disturb(number, seconds, longest))

    async def _disturb(self, number: int, seconds: float, longest: tuple[float, float]) -> None:
        """Kill and freeze a replica until the time is over."""
        end = time.monotonic() + seconds
        while True:
            await asyncio.sleep(self._random.uniform(0.2, seconds / 4))
            async with self._may_fail:
                if time.monotonic() > end:
                    return
                if self._random.random() < 0.5:
                    await self._kill(number)
                else:
                    await self._freeze(number, self._random.uniform(*longest))

    async def _kill(self, number: int) -> None:
        self.done.append("kill")
        self._replicas.kill(number)
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        await asyncio.to_thread(self._replicas.restart, number)

    async def _freeze(self, number: int, seconds: float) -> None:
        self.done.append("freeze")
        self._replicas.freeze(number)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._replicas.thaw(number)

    async def _restart_database(self, seconds: float) -> None:
        await asyncio.sleep(self._random.uniform(0.3, 0.6) * seconds)
        self.done.append("restart of PostgreSQL")
        await asyncio.to_thread(self._database.stop)
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        self._database.launch()  # the thread that does so must outlive it
        await asyncio.to_thread(self._database.wait)

    async def _silence_storage(self, seconds: float) -> None:
        await asyncio.sleep(self._random.uniform(0.1, 0.4) * seconds)
        self.done.append("silence of S3")
        with self._storage.frozen():
            await asyncio.sleep(self._random.uniform(0.2, 0.3) * seconds)


@contextmanager
def installation(
    folder: Path, database: Server, storage: ObjectStorage, count: int, bucket: str
) -> Iterator[Replicas]:
    """Run replicas on an empty database and an empty bucket."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    provider = {
        "provider_id": "pgvector",
        "provider_type": "remote::pgvector",
        "config": database.config,
    }
    hashing = {
        "provider_id": "hashing",
        "provider_type": "inline::hashing",
        "config": {"dimension": 64},
    }
    config = run_config(
        state=url_of(database),
        files=storage.bucket(bucket, STORAGE_TIMEOUT_SECONDS),
        providers={"vector_io": [provider], "embedding": [hashing]},
    )
    with Replicas(folder, config, count) as running:
        yield running


async def run_round(
    replicas: Replicas,
    count: int,
    database: Server,
    storage: ObjectStorage,
    *,
    seed: int,
    seconds: float,
    freeze: tuple[float, float] = SHORT_FREEZE,
) -> tuple[Outcome, list[str]]:
    """Run clients and faults for a time; return what happened, and the faults."""
    load = Load(replicas.urls, seed)
    chaos = Chaos(replicas, count, database, storage, seed)
    await load.register()
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run(CLIENTS, seconds))
        await chaos.run(seconds, freeze)
    await load.check()
    return load.outcome, chaos.done


def main(words: list[str]) -> int:
    """Run the rounds, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0, help="Length of a round's load.")
    parser.add_argument("--seed", type=int, default=1, help="Of the first round.")
    parser.add_argument(
        "--long", action="store_true", help="Freeze replicas for longer than a worker's lease."
    )
    options = parser.parse_args(words)
    defects = 0
    with postgresql() as database, ObjectStorage() as storage:
        for seed in range(options.seed, options.seed + options.rounds):
            begun = time.monotonic()
            with (
                tempfile.TemporaryDirectory(prefix="corral-replicas-") as folder,
                installation(
                    Path(folder), database, storage, options.replicas, f"round-{seed}"
                ) as replicas,
            ):
                outcome, faults = asyncio.run(
                    run_round(
                        replicas,
                        options.replicas,
                        database,
                        storage,
                        seed=seed,
                        seconds=options.seconds,
                        freeze=LONG_FREEZE if options.long else SHORT_FREEZE,
                    )
                )
            calls = ", ".join(f"{count} {name}" for name, count in sorted(outcome.calls.items()))
            print(
                f"round {seed}: {len(outcome.defects)} defects in {time.monotonic() - begun:.0f} s;"
                f" {len(faults)} faults; {calls}",
                flush=True,
            )
            for defect in outcome.defects[:20]:
                print(f"    {defect}", flush=True)
            defects += len(outcome.defects)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
