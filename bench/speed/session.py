"""One system under measurement: filled, built, checked, asked. Runs in a worker process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corral.api.vector_dbs import SearchMode
from corral.bench.backends import System
from corral.bench.speed.load import Load, Question, Timed, clocked, run_load
from corral.bench.speed.load_data import StoredMaterial, share_filter

BATCH = 500
"""Chunks that are stored in one call."""
SEARCHABLE_SECONDS = 30.0
"""How long a chunk may take to be found; after that it is not waited for."""
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
class Weight:
    """Growth of this process with its children since before the start, and the folder, in MiB.

    None where it cannot be known: on a system without /proc.
    """

    memory_mib: float | None
    disk_mib: float | None


class Session:
    """A system from its start to its end.

    Args:
        system: Not yet prepared.
        material: What it gets.
    """

    def __init__(self, system: System, material: StoredMaterial) -> None:
        self._system = system
        self._material = material
        self._before = memory_mib()
        self._questions = [
            Question(text, row)
            for text, row in zip(material.questions, material.asked, strict=True)
        ]

    async def prepare(self) -> None:
        """Start the system with an empty collection."""
        await self._system.prepare(self._material.collection)

    async def add(self, start: int, end: int) -> float:
        """Store the chunks of some rows, and return the seconds spent in the system's own calls."""
        spent = 0.0
        for chunks, rows in self._material.batches(BATCH, start, end):
            seconds, _ = await clocked(self._system.add, chunks, rows)
            spent += seconds
        return spent

    async def ready(self) -> Ready:
        """Build what is to be built, and ask until the last chunk is found."""
        begin = time.perf_counter()
        await self._system.build()
        built = time.perf_counter() - begin
        chunk, row = self._material.last()
        mode = SearchMode.VECTOR
        if mode not in self._system.modes:
            mode = SearchMode.KEYWORD
        while time.perf_counter() - begin < SEARCHABLE_SECONDS:
            found = await self._system.search(mode, chunk.content, row, _NEAR)
            if chunk.chunk_id in [one for one, _ in found]:
                return Ready(built, time.perf_counter() - begin)
            await asyncio.sleep(0.01)
        return Ready(built, None)

    async def answers(
        self, mode: SearchMode, selectivity: float | None, k: int, number: int
    ) -> list[list[str]]:
        """Return the chunk ids found for the first questions; this also warms everything up.

        A slow system is asked fewer: none is begun after `ANSWERS_SECONDS`.
        """
        filters = share_filter(selectivity)
        found: list[list[str]] = []
        ends = time.perf_counter() + ANSWERS_SECONDS
        for question in islice(self._questions, number):
            if len(found) >= LEAST_ANSWERS and time.perf_counter() > ends:
                break
            ranked = await self._system.search(
                mode, question.text, question.embedding, k, filters=filters
            )
            found.append([one for one, _ in ranked])
        return found

    async def load(self, load: Load, first: int) -> Timed:
        """Ask a round of questions."""
        return await run_load(self._system, self._questions, load, first)

    async def weigh(self) -> Weight:
        """Return what the system takes now."""
        now = memory_mib()
        grown = None if now is None or self._before is None else max(0.0, now - self._before)
        return Weight(grown, folder_mib(self._system.folder))

    async def close(self) -> None:
        """End the system."""
        await self._system.close()


def memory_mib() -> float | None:
    """Return the resident memory of this process and its children; None without /proc."""
    proc = Path("/proc")
    if not (proc / "self" / "statm").exists():
        return None
    family, pages = [os.getpid()], 0
    children = _children(proc)
    for process in family:
        family += children.get(process, [])
        try:
            pages += int((proc / str(process) / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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


def _children(proc: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    return found


def percent(selectivity: float | None) -> str:
    """Return a selectivity as people write it; "" for None."""
    return "" if selectivity is None else f"{selectivity * 100:g} %"


def spread(rows: int, parts: int) -> Sequence[tuple[int, int]]:
    """Return the bounds of so many parts of about the same size, none of them empty."""
    number = min(rows, parts)
    return [(n * rows // number, (n + 1) * rows // number) for n in range(number)]
