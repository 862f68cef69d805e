"""Random cases of who asks what, of which chunks, where; each is compared with an oracle.

A case is a principal, a backend, a route into it and that route's arguments. The oracle knows every
chunk and its acl, decides by the words of the rule who reads which, and says what must come back:

* what is searched for is what the operator finds with a filter that names the readable chunks, to
  the last score: what is hidden moves nothing. Only who may read everything, and so is not
  filtered, may get scores that differ by an engine's rounding (`ROUNDED`);
* what is listed, counted or read is what a dictionary of the readable chunks gives;
* what is written is stored, or refused as the rule says, and then nothing has changed;
* no mark of a chunk that may not be read is anywhere in an answer, its explanation or an error.

The vector DBs and the oracle are in `permission_worlds.py`, the routes in `permission_reading.py`
and `permission_writing.py`. The full run is one command, from the root of the project:

    python -m tests.providers.permission_cases --cases 100000 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from corral.api.errors import CorralError
from corral.api.principal import Principal

from .permission_reading import Reading
from .permission_worlds import ADMIN, World
from .permission_writing import Writing

BACKENDS: Mapping[str, int] = {
    "memory": 10, "sqlite": 6, "faiss": 5, "lancedb": 4, "qdrant": 4, "chroma": 1, "milvus": 1,
}  # fmt: skip
"""How often each is asked."""

ROUTES: Mapping[str, float] = {
    "query": 30, "search": 18, "context": 14, "answer": 6, "get": 6, "count": 3, "ids": 4,
    "documents": 3, "document": 5, "foreign": 3, "forged": 2, "add": 4, "replace": 3, "delete": 2,
    "remove": 2, "set_acl": 3, "copy": 0.05,
}  # fmt: skip
"""How often each way in is taken."""


class Cases(Reading, Writing):
    """Runs cases, one after the other, on some backends.

    Args:
        seed: Of everything.
        folder: For the backends.
        backends: Which, with how often each is asked.
        routes: The names of those that are taken; all where none is named.

    Attributes:
        findings: What was wrong, a sentence each.
        seen: How many cases there were by route.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        backends: Mapping[str, int] = BACKENDS,
        routes: Collection[str] = (),
    ) -> None:
        super().__init__(seed, folder, backends)
        self.seen: Counter[str] = Counter()
        self._routes = routes

    async def run(self, cases: int, *, until_found: bool = False) -> None:
        """Run so many cases; fewer where one finding is enough."""
        for _ in range(cases):
            await self._case()
            if until_found and self.findings:
                return

    async def _case(self) -> None:
        rng = self._random
        weights = [self._backends[world.backend] for world in self._worlds]
        world = rng.choices(self._worlds, weights)[0]
        who = self._principal()
        taken = {n: often for n, often in ROUTES.items() if not self._routes or n in self._routes}
        name = rng.choices(list(taken), list(taken.values()))[0]
        route: Callable[[World, Principal], Awaitable[None]] = getattr(self, f"_{name}")
        self.seen[name] += 1
        before = len(self.findings)
        try:
            await route(world, who)
        except CorralError as error:
            self.findings.append(f"wrong refusal: {type(error).__name__} {error}")
        for place in range(before, len(self.findings)):
            told = f"{name} on {world.backend} by {who.user!r} {sorted(who.groups)} {who.role}"
            self.findings[place] = f"{told}: {self.findings[place]}"
        if len(world.chunks) < 30:
            await self._insert(self._stack.for_principal(ADMIN), world, self._made(self._acl()))


async def main(cases: int, seed: int, backends: Mapping[str, int]) -> int:
    """Run cases, print what was found, and return how many findings there are."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with Cases(seed, Path(folder), backends) as run:
            await run.run(cases)
    total = sum(run.seen.values())
    print(f"{total} cases on {', '.join(backends)}, seed {seed}, ", end="")
    print(f"{time.monotonic() - started:.0f} s: {len(run.findings)} findings")
    print(", ".join(f"{name} {number}" for name, number in run.seen.most_common()))
    print("\n".join(run.findings[:20]))
    return len(run.findings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare random cases with an oracle.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    given = parser.parse_args()
    chosen = {name: BACKENDS.get(name, 1) for name in given.backends.split(",")}
    sys.exit(bool(asyncio.run(main(given.cases, given.seed, chosen))))
