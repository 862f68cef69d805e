"""Foreign systems for tests: one that works, and several that are broken on purpose."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench import backends
from corral.bench.peers import __name__ as package
from corral.bench.system import Collection, Ranked, Search, System
from corral.providers.text.analyzer import analyzer


class Exact(System):
    """Numpy for vectors, shared words for keywords, their mean for both; counts its calls."""

    calls: ClassVar[list[str]] = []

    async def prepare(self, collection: Collection) -> None:
        """Begin empty."""
        self.calls.append(f"prepare {collection.name}")
        self._analyzer = analyzer(collection.language)
        self._ids: list[str] = []
        self._words: list[set[str]] = []
        self._rows = np.empty((0, collection.dimension), np.float32)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Keep everything in memory."""
        self._ids += [chunk.chunk_id for chunk in chunks]
        self._words += [set(self._analyzer.terms(chunk.content)) for chunk in chunks]
        self._rows = np.concatenate([self._rows, embeddings])

    async def search(self, asked: Search) -> Ranked:
        """Return the k best."""
        mode = asked.mode.value
        self.calls.append(f"search {mode}")
        terms = set(self._analyzer.terms(asked.text))
        cosines = (self._rows @ asked.embedding + 1) / 2
        shares = np.array([len(terms & words) for words in self._words]) / max(1, len(terms))
        scores = {"vector": cosines, "keyword": shares, "hybrid": cosines + shares}[mode]
        order = np.argsort(-scores, kind="stable")[: asked.k]
        return [(self._ids[row], float(scores[row])) for row in order]

    async def close(self) -> None:
        """Report that it was closed."""
        self.calls.append("close")


class Worst(Exact):
    """Returns the worst first, with scores that fall: the sign was lost."""

    async def search(self, asked: Search) -> Ranked:
        """Return the k worst, from 1 down."""
        hits = await super().search(replace(asked, k=len(self._ids)))
        return [(name, 1 - score) for name, score in reversed(hits)][: asked.k]


class Distances(Exact):
    """Returns the right order with distances where scores are due."""

    async def search(self, asked: Search) -> Ranked:
        """Return 1 - score."""
        hits = await super().search(asked)
        return [(name, 1 - score) for name, score in hits]


class Backwards(Exact):
    """Finds the right ones and returns them the wrong way round."""

    async def search(self, asked: Search) -> Ranked:
        """Turn the hits around."""
        hits = await super().search(asked)
        return [(name, -score) for name, score in reversed(hits)]


class Lossy(Exact):
    """Never finds every fifth chunk, as an approximate index might."""

    async def search(self, asked: Search) -> Ranked:
        """Return the k best of the others."""
        hits = await super().search(replace(asked, k=len(self._ids)))
        return [hit for hit in hits if self._ids.index(hit[0]) % 5][: asked.k]


class Renamed(Exact):
    """Returns ids that nobody stored."""

    async def search(self, asked: Search) -> Ranked:
        """Return each id with a prefix."""
        hits = await super().search(asked)
        return [(f"x-{name}", score) for name, score in hits]


class Unreachable(Exact):
    """Cannot start."""

    async def prepare(self, collection: Collection) -> None:
        """Fail."""
        raise ConnectionRefusedError("nobody listens there")


class Full(Exact):
    """Cannot store."""

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Fail."""
        raise RuntimeError("disk full")


class Wordless(Exact):
    """Fails in keyword mode only."""

    async def search(self, asked: Search) -> Ranked:
        """Fail for words."""
        if asked.mode is SearchMode.KEYWORD:
            raise ValueError("unexpected punctuation")
        return await super().search(asked)


class VectorOnly(Exact):
    """Has one mode."""

    modes: ClassVar[tuple[SearchMode, ...]] = (SearchMode.VECTOR,)


class Missing(Exact):
    """Needs a package that nobody has."""

    requires: ClassVar[tuple[str, ...]] = ("corral-no-such-thing",)


class Service(Exact):
    """Is reached at an address."""

    service: ClassVar[bool] = True


SYSTEMS: dict[str, type[System]] = {
    kind.__name__.lower(): kind
    for kind in (
        Exact, Worst, Distances, Backwards, Lossy, Renamed, Unreachable, Full, Wordless, VectorOnly,
        Missing, Service,
    )
}  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch, systems: dict[str, type[System]] = SYSTEMS) -> None:
    """Make systems known under their names, as if each had a file in bench/peers."""
    for name, kind in systems.items():
        module = ModuleType(f"{package}.{name}")
        vars(module)["PEER"] = kind
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(backends, "peer_names", lambda: sorted(systems))
    monkeypatch.setattr(Exact, "calls", [])
