"""Compare judged sets in one vector DB with the same sets split over several.

The parts are searched together, as every request searches (`Retrieval.search_many`). A set is split
in two ways: in blocks of consecutive documents, and at random. The parts are distributed round
robin over the backends, so one search can span providers.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.backends import find_backends
from corral.bench.data.datasets import read_sets
from corral.bench.data.embedded import EmbeddedSet, Embedding, with_hashing
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.report.blocks import Column, Table
from corral.bench.scratch import scratch_stack, store
from corral.providers.base.config import Providers, RunConfig
from corral.providers.rag.search import Retrieval
from corral.providers.stack.stack import Stack

K = 10
TIMED = 100
"""Maximum number of questions to time."""
WAYS = ("block", "random")
BOUND_RATIO, BOUND_MS = 1.3, 2.0
"""A search of all parts may take 1.3 times as long as the slowest part, plus 2 ms."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Options of a run.

    Attributes:
        config: Configuration of the backends and the embedding model.
        home: The data folder, which caches embeddings between runs.
        backends: Names for `find_backends`; the parts are distributed over them.
        data: Judged sets, as for `read_sets`.
        parts: Numbers of vector DBs, >= 2.
        modes: Search modes.
        model: The embedding model.
        most: Maximum number of questions per set.
        seed: Seed of the random split.
    """

    config: RunConfig
    home: Path
    backends: Sequence[str]
    data: Sequence[str]
    parts: Sequence[int]
    modes: Sequence[SearchMode]
    model: str
    most: int
    seed: int


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A set in one mode, in one vector DB and in parts.

    Attributes:
        one: nDCG@10 of one vector DB.
        split: nDCG@10 of the parts.
        part_ms: Median time of a search of the slowest part alone, in milliseconds.
        all_ms: Median time of a search of all parts.
    """

    data_set: str
    mode: SearchMode
    parts: int
    way: str
    one: float
    split: float
    part_ms: float
    all_ms: float

    @property
    def bound_ms(self) -> float:
        """Return the longest time that a search of all parts may take, in milliseconds."""
        return BOUND_RATIO * self.part_ms + BOUND_MS


async def run_split(plan: SplitPlan) -> list[SplitRow]:
    """Return a row for each set, mode, number of parts and way to split.

    Raises:
        CorralError: A backend is unknown, a set cannot be read, or embedder or backend fail.
    """
    entries = [
        backend.entry
        for backend in find_backends(list(plan.backends), plan.config)
        if backend.entry is not None
    ]
    embedding = with_hashing(plan.config.providers.embedding)
    providers = Providers(vector_io=entries, embedding=embedding)
    config = plan.config.model_copy(update={"providers": providers})
    rows: list[SplitRow] = []
    for judged in read_sets(list(plan.data)):
        async with Embedding.opened(plan.config, plan.home, plan.model) as model:
            embedded = await model.embed(judged)
        async with scratch_stack(config) as stack:
            measured = _Measured(plan, stack, embedded)
            rows += [row async for row in measured.rows()]
    return rows


def split_table(rows: Sequence[SplitRow]) -> Table:
    """Return the rows as a table."""
    columns = ["vector DBs", "split", "one", "nDCG@10", "difference", "slowest", "all", "bound"]
    return Table(
        f"nDCG@{K} of several vector DBs beside one; median milliseconds of a search",
        [Column("set"), Column("mode"), *(Column(name, figures=True) for name in columns)],
        [
            [
                row.data_set,
                row.mode.value,
                str(row.parts),
                row.way,
                f"{row.one:.4f}",
                f"{row.split:.4f}",
                f"{row.split - row.one:+.4f}",
                f"{row.part_ms:.2f}",
                f"{row.all_ms:.2f}",
                f"{row.bound_ms:.2f}",
            ]
            for row in rows
        ],
    )


class _Measured:
    """One judged set, in one vector DB and in parts."""

    def __init__(self, plan: SplitPlan, stack: Stack, embedded: EmbeddedSet) -> None:
        self._plan, self._stack, self._embedded = plan, stack, embedded
        self._providers = [entry.provider_id for entry in stack.config.providers.vector_io]
        self._retrieval = Retrieval(stack)
        judged = embedded.judged
        self._questions = dict(islice(judged.queries.items(), plan.most))
        self._qrels = {name: judged.qrels[name] for name in self._questions}

    async def rows(self) -> AsyncIterator[SplitRow]:
        """Yield the rows of the set."""
        judged = self._embedded.judged
        count = len(judged.documents)
        whole = await self._stored([list(range(count))])
        one = {mode: await self._ndcg(whole, mode) for mode in self._plan.modes}
        await self._unregister(whole)
        for parts in self._plan.parts:
            for way in WAYS:
                names = await self._stored(_places(count, parts, way, self._plan.seed))
                for mode in self._plan.modes:
                    split = await self._ndcg(names, mode)
                    times = await self._times(names, mode)
                    yield SplitRow(judged.name, mode, parts, way, one[mode], split, *times)
                await self._unregister(names)

    async def _stored(self, places: Sequence[Sequence[int]]) -> list[str]:
        """Store parts of the set, each in a vector DB; return their ids."""
        judged, contents = self._embedded.judged, self._embedded.contents
        ids = list(judged.documents)
        names = [f"part{number}" for number in range(len(places))]
        for number, (name, some) in enumerate(zip(names, places, strict=True)):
            registration = VectorDBRegistration(
                vector_db_id=name,
                embedding_model=self._plan.model,
                provider_id=self._providers[number % len(self._providers)],
                language=judged.language,
            )
            await self._stack.register(registration)
            chunks = [Chunk(chunk_id=ids[place], content=contents[place]) for place in some]
            index = await self._stack.index(name)
            await store(index, chunks, self._embedded.documents[list(some)])
            await index.settle()
        return names

    async def _unregister(self, names: Sequence[str]) -> None:
        for name in names:
            await self._stack.unregister(name)

    async def _ndcg(self, names: Sequence[str], mode: SearchMode) -> float:
        run = {}
        for question, text in self._questions.items():
            found = await self._retrieval.search_many(names, text, k=K, mode=mode)
            run[question] = [each.hit.chunk.chunk_id for each in found.hits]
        return statistics.fmean(measure(self._qrels, run)[NDCG].values())

    async def _times(self, names: Sequence[str], mode: SearchMode) -> tuple[float, float]:
        """Return the median times in milliseconds: of the slowest part alone, and of all parts."""
        alone: dict[str, list[float]] = {name: [] for name in names}
        together: list[float] = []
        for text in list(self._questions.values())[:TIMED]:
            for name in names:
                alone[name].append(await self._timed([name], text, mode))
            together.append(await self._timed(names, text, mode))
        return max(map(statistics.median, alone.values())), statistics.median(together)

    async def _timed(self, names: Sequence[str], text: str, mode: SearchMode) -> float:
        begun = time.perf_counter()
        await self._retrieval.search_many(names, text, k=K, mode=mode)
        return 1000 * (time.perf_counter() - begun)


def _places(count: int, parts: int, way: str, seed: int) -> list[list[int]]:
    """Return the positions of each part's documents: consecutive ones, or drawn at random."""
    places = list(range(count))
    if way == "random":
        random.Random(seed).shuffle(places)
    bounds = [count * number // parts for number in range(parts + 1)]
    return [places[start:end] for start, end in pairwise(bounds)]
