"""A separate process for each system, to isolate memory, crashes and threads.

    worker = Worker(backend, scratch_folder, questions)
    await worker.call("prepare", collection)
    seconds = await worker.call("add", chunks, embeddings)
    worker.stop()

The process holds a `Session`. One question at a time goes through a pipe, and nothing else runs in
the process during that time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend
from corral.bench.data.corpus import share_limit
from corral.bench.run import OutOfTime, said
from corral.bench.speed.load import Load, Question, Timed, run_load
from corral.bench.stopwatch import clocked
from corral.bench.system import Collection, Search, System

SEARCHABLE_SECONDS = 30.0
"""Maximum seconds to wait until a chunk can be found."""
ANSWERS_SECONDS = 5.0
LEAST_ANSWERS = 10
_NEAR = 10


@dataclass(frozen=True, slots=True)
class Ready:
    """Times of the events after the last insert, in seconds.

    Attributes:
        build_seconds: Until `build` returned.
        searchable_seconds: Until a query found the last chunk; None if none did.
    """

    build_seconds: float
    searchable_seconds: float | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Growth of this process and its children since the start, and the folder's size, in MiB."""

    memory_mib: float
    disk_mib: float


class Session:
    """The lifetime of a system.

    Args:
        system: A system that is not yet prepared.
        questions: Texts of the questions, and their embeddings, shape (n, dimension).
        searchable_seconds: Maximum time until a query finds the last chunk.
    """

    def __init__(
        self,
        system: System,
        questions: tuple[list[str], NDArray[np.float32]],
        searchable_seconds: float = SEARCHABLE_SECONDS,
    ) -> None:
        self._system = system
        self._searchable_seconds = searchable_seconds
        self._before = memory_mib()
        self._questions = [Question(*each) for each in zip(*questions, strict=True)]

    async def prepare(self, collection: Collection) -> None:
        """Start the system with an empty collection."""
        await self._system.prepare(collection)

    async def add(self, chunks: Sequence[Chunk], rows: NDArray[np.float32]) -> float:
        """Store chunks, and return the elapsed seconds."""
        seconds, _ = await clocked(self._system.add, chunks, rows)
        return seconds

    async def ready(self, chunk: Chunk, row: NDArray[np.float32]) -> Ready:
        """Build the indexes, and ask until the last chunk is found."""
        begin = time.perf_counter()
        await self._system.build()
        built = time.perf_counter() - begin
        mode = SearchMode.VECTOR
        if mode not in self._system.modes:
            mode = SearchMode.KEYWORD
        while True:  # at least once, however long the build took
            found = await self._system.search(Search(mode, chunk.content, row, _NEAR))
            passed = time.perf_counter() - begin
            if chunk.chunk_id in [one for one, _ in found]:
                return Ready(built, passed)
            if passed > self._searchable_seconds:
                return Ready(built, None)
            await asyncio.sleep(0.01)

    async def answers(
        self, mode: SearchMode, selectivity: float | None, k: int, number: int
    ) -> list[list[str]]:
        """Return the chunk ids found for the first questions; this also warms everything up.

        A slow system gets fewer questions: none starts after `ANSWERS_SECONDS`.
        """
        load = Load(mode, k, share_limit(selectivity))
        found: list[list[str]] = []
        ends = time.perf_counter() + ANSWERS_SECONDS
        for question in islice(self._questions, number):
            if len(found) >= LEAST_ANSWERS and time.perf_counter() > ends:
                break
            ranked = await self._system.search(load.search(question))
            found.append([one for one, _ in ranked])
        return found

    async def load(self, load: Load, first: int) -> Timed:
        """Ask a round of questions."""
        return await run_load(self._system, self._questions, load, first)

    async def footprint(self) -> Footprint:
        """Return the system's current memory and disk space."""
        grown = max(0.0, memory_mib() - self._before)
        return Footprint(grown, folder_mib(self._system.folder))

    async def close(self) -> None:
        """End the system."""
        await self._system.close()


def memory_mib() -> float:
    """Return the resident memory of this process and its children."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0
    for process in family:
        with suppress(psutil.NoSuchProcess):  # the process has ended since
            total += process.memory_info().rss
    return total / 2**20


def folder_mib(folder: Path) -> float:
    """Return the disk usage of a folder: allocated blocks, not the length of sparse files."""
    total = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # the file was removed since
            continue
        blocks = getattr(status, "st_blocks", None)
        total += status.st_size if blocks is None else blocks * 512
    return total / 2**20


def spread(rows: int, parts: int) -> Sequence[tuple[int, int]]:
    """Return the bounds of this many non-empty parts of nearly equal size."""
    number = min(rows, parts)
    return [(n * rows // number, (n + 1) * rows // number) for n in range(number)]


CALL_SECONDS = 600.0
_PATIENCE_SECONDS = 10.0


class WorkerFailed(Exception):
    """An error in the worker, as text for a report."""


class Worker:
    """A worker process, which ends at the latest with its parent.

    Args:
        backend: The measured backend.
        scratch: Empty folder for the system, removed by the caller.
        questions: As for `Session`.
        call_seconds: Time limit of one step, after which the process is killed.
    """

    def __init__(
        self,
        backend: Backend,
        scratch: Path,
        questions: Any,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._call_seconds = call_seconds
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        arguments = (other, backend, scratch, questions)
        self._process = context.Process(target=_work, args=arguments, daemon=False)
        self._process.start()
        self._unanswered = 0
        other.close()

    @property
    def alive(self) -> bool:
        """Return True if the process is running."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """The process's exit code; None while it runs, negative after a signal."""
        return self._process.exitcode

    async def call(self, what: str, *arguments: Any, ends: float = float("inf")) -> Any:
        """Return the result of the session's method.

        Args:
            what: Name of a method of `Session`.
            arguments: Its arguments.
            ends: On the clock of `time.monotonic`; after it, the worker is not called, or is
                killed.

        Raises:
            OutOfTime: The result did not arrive in time.
            WorkerFailed: The method failed, the process ended, or it was killed because the call
                exceeded `call_seconds`.
        """
        hangs = time.monotonic() + self._call_seconds
        if time.monotonic() > ends:
            raise OutOfTime
        try:
            self._pipe.send((what, arguments))
            self._unanswered += 1
            while not await asyncio.to_thread(self._pipe.poll, 0.25):
                if time.monotonic() > min(hangs, ends):
                    self.kill()
                    if hangs > ends:
                        raise OutOfTime
                    raise WorkerFailed(f"No answer within {self._call_seconds:g} s.")
            holds, result = self._pipe.recv()
            self._unanswered -= 1
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE_SECONDS)
            raise WorkerFailed(f"Its process ended, code {self.exit_code}.") from error
        if not holds:
            raise WorkerFailed(result)
        return result

    def stop(self) -> None:
        """Close the system and end the process."""
        try:
            self._pipe.send(("close", ()))
            for _ in range(self._unanswered + 1):  # a call may have been interrupted
                if self._pipe.poll(_PATIENCE_SECONDS):
                    self._pipe.recv()
        except (EOFError, OSError):
            pass
        self._pipe.close()
        self._process.join(_PATIENCE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the process."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(pipe: Connection, backend: Backend, scratch: Path, questions: Any) -> None:
    """Serve calls until the pipe is closed."""
    os.dup2(2, 1)  # engines' output does not belong in a report
    # the parent gets the signal too, and ends this process in order
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    session: Session | None = None
    with asyncio.Runner() as runner:
        while True:
            try:
                what, arguments = pipe.recv()
            except (EOFError, OSError):  # the parent has ended, or has no more questions
                return
            try:
                if session is None:
                    session = Session(backend.open(scratch), questions)
                answer = (True, runner.run(getattr(session, what)(*arguments)))
            except Exception as error:  # noqa: BLE001 - the parent process reports it
                answer = (False, said(error))
            try:
                pipe.send(answer)
            except OSError:  # the parent no longer waits for it
                return
