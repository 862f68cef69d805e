"""Kills and freezes replicas of one installation under load, and checks that nothing is lost.

    python -m lab.replicas --rounds 20 --replicas 2 --engine chroma

The replicas have one state in PostgreSQL, files in a bucket, and vectors in pgvector or in a Chroma
server, whose writes need the write-ahead log. In each round clients write and read through all of
them in turn. In the first part of the round, half of the replicas get SIGKILL and half SIGSTOP,
PostgreSQL is stopped or killed once, and the bucket does not answer for some seconds. What is
acknowledged must be there at once, in every replica; at the end, all of it whole and once, every
job completed, and every answer a success or a 503 with `Retry-After`. The exit code is 1 if a round
has a defect.

With `--rolling`, nothing fails. Instead, each replica gets SIGTERM and is started again, one after
the other, while the clients use only replicas that are ready. Then no connection may be lost.
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
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from corral.providers.base.config import RunConfig
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.opening import SCHEMA
from tests.object_storage import ObjectStorage
from tests.providers.conftest import url_of
from tests.providers.vector_io.chroma.conftest import Server as ChromaServer
from tests.providers.vector_io.pgvector.conftest import Server, postgresql
from tests.providers.vector_io.real_server import folder_in_memory
from tests.server.harness import ServerProcess, run_config

from .replica_load import Json, Load, Outcome

CLIENTS = 8
MAX_STARTS = 20
STORAGE_TIMEOUT_SECONDS = 2.0
JOB_SECONDS = 5.0
"""How long a fault waits until its replica works on a job."""
FAULT_SECONDS = 8.0
"""Time in which the faults begin."""
SHORT_FREEZE = (0.5, 6.0)
DRAIN_SECONDS = 3.0
"""How long a replica serves after SIGTERM: longer than a load balancer takes to notice."""
LONG_FREEZE = (LEASE_SECONDS + 8, LEASE_SECONDS + 14)
"""Seconds: longer than another process takes to take work over."""


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

    def owners(self, number: int) -> set[str]:
        """Return the names under which a server's processes own jobs."""
        return {path.stem for path in (self._homes[number] / "workers").glob("*.lock")}

    def kill(self, number: int) -> None:
        """Kill a server without warning."""
        self._servers[number].kill()

    def replace(self, number: int) -> None:
        """Stop a server as an operator does, and start another one."""
        self._servers[number].terminate()
        if code := self._servers[number].wait():
            raise RuntimeError(f"A replica ended with {code}.")
        self.restart(number)

    def restart(self, number: int) -> None:
        """Start a server that has ended, again if PostgreSQL is away, as a supervisor does."""
        for _ in range(MAX_STARTS):
            try:
                self._servers[number] = ServerProcess(self._homes[number], self._config)
            except (AssertionError, TimeoutError):  # it ended, or the machine is too busy
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
    """Faults at random times; one replica of several always works.

    Args:
        replicas: All of them run.
        seed: Of all random choices.

    Attributes:
        done: The faults that happened.
    """

    def __init__(
        self, replicas: Replicas, database: Server, storage: ObjectStorage, seed: int
    ) -> None:
        self._replicas = replicas
        self._database = database
        self._storage = storage
        self._random = random.Random(seed)
        self._may_fail = asyncio.Semaphore(max(1, len(replicas.urls()) - 1))
        self.done: list[str] = []

    async def run(self, freeze: tuple[float, float]) -> None:
        """Cause one fault of each replica, PostgreSQL and the bucket; then everything runs.

        Args:
            freeze: Minimum and maximum time in seconds that a replica is frozen.
        """
        numbers = list(range(len(self._replicas.urls())))
        self._random.shuffle(numbers)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restart_database())
            group.create_task(self._silence_storage())
            for number in numbers[::2]:
                group.create_task(self._freeze(number, self._random.uniform(*freeze)))
            for number in numbers[1::2]:
                group.create_task(self._kill(number))

    async def replace_all(self) -> None:
        """Replace one replica after the other."""
        for number in range(len(self._replicas.urls())):
            await asyncio.sleep(self._random.uniform(1.0, 3.0))
            self.done.append("replacement")
            await asyncio.to_thread(self._replicas.replace, number)

    async def _begin(self, fault: str) -> None:
        await asyncio.sleep(self._random.uniform(0.5, FAULT_SECONDS))
        self.done.append(fault)

    async def _kill(self, number: int) -> None:
        await self._begin("kill")
        async with self._may_fail:
            await asyncio.to_thread(self._wait_for_job, number)
            self._replicas.kill(number)
            await asyncio.sleep(self._random.uniform(0.1, 1.0))
            await asyncio.to_thread(self._replicas.restart, number)

    async def _freeze(self, number: int, seconds: float) -> None:
        await self._begin("freeze")
        async with self._may_fail:
            await asyncio.to_thread(self._wait_for_job, number)
            self._replicas.freeze(number)
            try:
                await asyncio.sleep(seconds)
            finally:
                self._replicas.thaw(number)

    def _wait_for_job(self, number: int) -> None:
        """Wait until a replica works on a job, if it does so soon."""
        deadline = time.monotonic() + JOB_SECONDS
        running = f"SELECT owner FROM {SCHEMA}.jobs WHERE status = 'running'"
        with (
            suppress(psycopg.OperationalError),  # PostgreSQL is down
            psycopg.connect(self._database.dsn, autocommit=True) as connection,
        ):
            while time.monotonic() < deadline:
                owners = {owner for (owner,) in connection.execute(running.encode())}
                if owners & self._replicas.owners(number):
                    return
                time.sleep(0.005)

    async def _restart_database(self) -> None:
        await self._begin("restart of PostgreSQL")
        how = self._random.choice([signal.SIGINT, signal.SIGQUIT])  # SIGQUIT ends it as a crash
        await asyncio.to_thread(self._database.stop, how)
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        self._database.launch()  # the thread that does so must outlive it
        await asyncio.to_thread(self._database.wait)

    async def _silence_storage(self) -> None:
        await self._begin("silence of S3")
        with self._storage.frozen():
            await asyncio.sleep(self._random.uniform(1.0, FAULT_SECONDS))


@contextmanager
def vector_engine(name: str, database: Server) -> Iterator[Json]:
    """Run an engine, and yield the entry of its provider."""
    entry = {"provider_id": name, "provider_type": f"remote::{name}"}
    if name == "pgvector":
        yield {**entry, "config": database.config}
        return
    with folder_in_memory() as folder:
        server = ChromaServer(folder)
        server.start()
        try:
            yield {**entry, "config": {"url": server.url}}
        finally:
            server.kill()


@contextmanager
def installation(
    folder: Path, database: Server, storage: ObjectStorage, count: int, engine: str = "pgvector"
) -> Iterator[Replicas]:
    """Run replicas on an empty database and an empty bucket."""
    hashing = {
        "provider_id": "hashing",
        "provider_type": "inline::hashing",
        "config": {"dimension": 64},
    }
    with vector_engine(engine, database) as provider:
        config = run_config(
            state=url_of(database),
            files=storage.bucket("corral", STORAGE_TIMEOUT_SECONDS),
            providers={"vector_io": [provider], "embedding": [hashing]},
            server={"port": 0, "drain_seconds": DRAIN_SECONDS},
        )
        with Replicas(folder, config, count) as running:
            yield running


async def run_round(
    replicas: Replicas,
    database: Server,
    storage: ObjectStorage,
    *,
    seed: int,
    seconds: float,
    freeze: tuple[float, float] = SHORT_FREEZE,
    rolling: bool = False,
) -> tuple[Outcome, list[str]]:
    """Run clients for a time, and longer while there are faults; return results and faults.

    Args:
        seconds: Minimum time.
        freeze: As in `Chaos.run`.
        rolling: True to replace each replica instead.
    """
    load = Load(replicas.urls, f"round-{seed}", seed, probing=rolling)
    chaos = Chaos(replicas, database, storage, seed)
    await load.register()
    async with asyncio.TaskGroup() as group:
        clients = group.create_task(load.run(CLIENTS))
        work = chaos.replace_all() if rolling else chaos.run(freeze)
        await asyncio.gather(work, asyncio.sleep(seconds))
        load.stop()
        await clients
    await load.check()
    return load.outcome, chaos.done


def main(words: list[str]) -> int:
    """Run the rounds, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--engine", choices=["pgvector", "chroma"], default="pgvector")
    parser.add_argument("--seconds", type=float, default=20.0, help="Minimum length of a round.")
    parser.add_argument("--seed", type=int, default=1, help="Of the first round.")
    parser.add_argument(
        "--long", action="store_true", help="Freeze replicas for longer than a worker's lease."
    )
    parser.add_argument("--rolling", action="store_true", help="Replace replicas; no faults.")
    options = parser.parse_args(words)
    defects = 0
    with (
        tempfile.TemporaryDirectory(prefix="corral-replicas-") as folder,
        postgresql() as database,
        ObjectStorage() as storage,
        installation(Path(folder), database, storage, options.replicas, options.engine) as replicas,
    ):
        for seed in range(options.seed, options.seed + options.rounds):
            begun = time.monotonic()
            outcome, faults = asyncio.run(
                run_round(
                    replicas,
                    database,
                    storage,
                    seed=seed,
                    seconds=options.seconds,
                    freeze=LONG_FREEZE if options.long else SHORT_FREEZE,
                    rolling=options.rolling,
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
