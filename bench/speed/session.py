"""One system under measurement: filled, built, checked, asked. Runs in a worker process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import share_limit
from corral.bench.speed.load import Load, Question, Timed, run_load
from corral.bench.stopwatch import clocked
from corral.bench.system import Collection, Search, System

SEARCHABLE_SECONDS = 30.0
"""How long to ask for a chunk that is not found."""
ANSWERS_SECONDS = 5.0
LEAST_ANSWERS = 10
_NEAR = 10


@dataclass(frozen=True, slots=True)
class Ready:
    """What happened after the last insert had returned; seconds from then on.

    Attributes:
        build_seconds: Until `build` returned.
        searchable_seconds: Until a query found the last chunk; None where none did.
    """

    build_seconds: float
    searchable_seconds: float | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Growth of this process with its children since before the start, and the folder, in MiB."""

    memory_mib: float
    disk_mib: float


class Session:
    """A system from its start to its end.

    Args:
        system: Not yet prepared.
        questions: Their texts, and their embeddings, shape (n, dimension).
    """

    def __init__(self, system: System, questions: tuple[list[str], NDArray[np.float32]]) -> None:
        self._system = system
        self._before = memory_mib()
        self._questions = [Question(*each) for each in zip(*questions, strict=True)]

    async def prepare(self, collection: Collection) -> None:
        """Start the system with an empty collection."""
        await self._system.prepare(collection)

    async def add(self, chunks: Sequence[Chunk], rows: NDArray[np.float32]) -> float:
        """Store chunks, and return the seconds that it took."""
        seconds, _ = await clocked(self._system.add, chunks, rows)
        return seconds

    async def ready(self, chunk: Chunk, row: NDArray[np.float32]) -> Ready:
        """Build what is to be built, and ask until the last chunk is found."""
        begin = time.perf_counter()
        await self._system.build()
        built = time.perf_counter() - begin
        mode = SearchMode.VECTOR
        if mode not in self._system.modes:
            mode = SearchMode.KEYWORD
        while True:  # at least once, however long the building took
            found = await self._system.search(Search(mode, chunk.content, row, _NEAR))
            passed = time.perf_counter() - begin
            if chunk.chunk_id in [one for one, _ in found]:
                return Ready(built, passed)
            if passed > SEARCHABLE_SECONDS:
                return Ready(built, None)
            await asyncio.sleep(0.01)

    async def answers(
        self, mode: SearchMode, selectivity: float | None, k: int, number: int
    ) -> list[list[str]]:
        """Return the chunk ids found for the first questions; this also warms everything up.

        A slow system is asked fewer: none is begun after `ANSWERS_SECONDS`.
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
        """Return what the system takes now."""
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
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            total += process.memory_info().rss
    return total / 2**20


def folder_mib(folder: Path) -> float:
    """Return the disk space of a folder: blocks in use, not the length of sparse files."""
    total = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed meanwhile
            continue
        blocks = getattr(status, "st_blocks", None)
        total += status.st_size if blocks is None else blocks * 512
    return total / 2**20


def spread(rows: int, parts: int) -> Sequence[tuple[int, int]]:
    """Return the bounds of so many parts of about the same size, none of them empty."""
    number = min(rows, parts)
    return [(n * rows // number, (n + 1) * rows // number) for n in range(number)]
