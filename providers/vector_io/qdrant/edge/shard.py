"""One open shard: the folder that holds it, and steps that exclude each other."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

import qdrant_edge as qdrant

from corral.api.errors import Conflict, NotFound, ProviderError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.edge import client

T = TypeVar("T")

_COMPLETE = "complete"
"""A file made last. It says in which folder beside it the engine's files are, and how many points
the graph there has; it is empty where they are beside it themselves, without a graph."""

_PLACE = "shard-"


class ShardFolder:
    """The folder of one vector DB: `complete`, and the engine's files, which may change places.

    Args:
        path: Of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_complete(self) -> bool:
        """True if a shard was made here."""
        return (self.path / _COMPLETE).exists()

    def current(self) -> tuple[Path, int]:
        """Return where the engine's files are, and how many points were in their graph: 0 for none.

        Raises:
            OSError: There is no shard.
        """
        text = (self.path / _COMPLETE).read_text()
        found = json.loads(text) if text else {}
        return self.path / found.get("folder", ""), found.get("graphed", 0)

    def open(self, config: qdrant.EdgeConfig) -> tuple[qdrant.EdgeShard, int]:
        """Open the engine's files, and delete those that are not in use.

        Returns:
            The shard, and how many points were in its graph when that was built: 0 for no graph.

        Raises:
            Unavailable: Another process has it open, and was just putting a copy in its place.
        """
        place, graphed = self.current()
        shard = qdrant.EdgeShard.load(str(place), config)
        if self.current()[0] != place:
            shard.close()
            raise Unavailable("Another process has this vector DB open.", hint="Try again.")
        self.clear()
        return shard, graphed

    def forget_graph(self) -> int:
        """Record that the shard has no graph, which is 0 points."""
        self.switch(self.current()[0], 0)
        return 0

    def begin(self) -> None:
        """Make the folder, empty: a killed process may have left half of a shard."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)

    def finish(self) -> None:
        """Record that the shard is made."""
        (self.path / _COMPLETE).touch()

    def new(self) -> Path:
        """Return the place of another copy; nothing is there."""
        return self.path / f"{_PLACE}{uuid.uuid4().hex[:12]}"

    def copy_to(self, place: Path) -> None:
        """Copy the engine's files to another place."""
        source, _ = self.current()
        others = shutil.ignore_patterns(f"{_COMPLETE}*", f"{_PLACE}*")
        shutil.copytree(source, place, ignore=others)

    def switch(self, place: Path, graphed: int) -> None:
        """Have the engine's files at another place from now on, also after a loss of power."""
        new = self.path / f"{_COMPLETE}.new"
        with new.open("w") as file:
            json.dump({"folder": place.name, "graphed": graphed}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / _COMPLETE)

    def clear(self) -> None:
        """Delete what is not in use: earlier places, and copies that a killed process has begun."""
        place, _ = self.current()
        if place == self.path:
            unused = [*self.path.glob(f"{_PLACE}*"), *self.path.glob(f"{_COMPLETE}.*")]
        else:
            unused = [p for p in self.path.iterdir() if p not in (place, self.path / _COMPLETE)]
        for path in unused:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete everything, `complete` first."""
        with suppress(OSError):  # where there is no folder
            (self.path / _COMPLETE).unlink()
        shutil.rmtree(self.path, ignore_errors=True)


class Shard:
    """One shard. The engine is synchronous and holds the interpreter's lock while it works.

    Each call is one step, and steps exclude each other; a step on a shard that was closed or
    dropped says so. A search is a step where it is called, and any other is one in a thread: a
    thread frees nobody from waiting for a search, and going there and back takes as long as one.

    A write of several operations is one step, and one transaction too: its first operation leaves a
    journal of what is to be deleted, its last one deletes the journal with it, and the next step,
    or whoever opens the shard, finishes what a failure or a kill has interrupted. An operation is
    one entry of the engine's log.

    Args:
        vector_db: The registration.
        folder: Where it is; `complete`.
        shard: The engine's, open.
    """

    def __init__(self, vector_db: VectorDB, folder: ShardFolder, shard: qdrant.EdgeShard) -> None:
        self._vector_db = vector_db
        self._provider_id = vector_db.provider_id
        self._folder = folder
        self._shard = shard
        self._lock = threading.Lock()
        self._ended: type[Unavailable | NotFound] | None = None  # what a step then raises
        self._unfinished = False  # whether a journal may be there
        self._written: set[str] | None = None  # points that differ in the copy, if one is made

    async def _read(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        """Take a step here, unless it would wait for another one."""
        if self._unfinished or not self._lock.acquire(blocking=False):
            return await self._step(work)
        try:
            return self._taken(work)
        finally:
            self._lock.release()

    async def _step(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        return await asyncio.to_thread(self.step, work)

    def step(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        """Take a step in this thread.

        Raises:
            NotFound, Unavailable: The shard was dropped, or closed.
            ProviderError: The engine failed.
        """
        with self._lock:
            return self._taken(work)

    def _taken(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        self._check_open()
        with client.errors(self._provider_id):
            if self._unfinished:
                self._forget_everything()
                client.finish(self._shard)
                self._unfinished = False
            return work(self._shard)

    def _forget(self, ids: Sequence[str]) -> None:
        """Keep nothing of points that are about to be written or deleted."""
        if self._written is not None:
            self._written.update(ids)

    def _forget_everything(self) -> None:
        """Keep nothing: which points an interrupted write has still to delete is unknown."""
        self._written = None

    # --- a copy that takes the shard's place ---------------------------------------------------

    def new_place(self) -> Path:
        """Return where a copy can be; nothing is there."""
        return self._folder.new()

    def copy_to(self, place: Path) -> int:
        """Copy the shard, in one step, and return how many points it has; the copy is closed.

        What is written from now on can be carried over.
        """

        def copy(shard: qdrant.EdgeShard) -> int:
            shard.flush()
            self._folder.copy_to(place)
            self._written = set()
            return client.count(shard, None)

        return self.step(copy)

    def carry_over(self, copy: qdrant.EdgeShard, most: int) -> int:
        """Write to the copy, in one step, what was written to the shard meanwhile.

        Args:
            copy: Open.
            most: Points that are carried over.

        Returns:
            How many are left.

        Raises:
            Conflict: The copy is of no use: a write failed half-way, and was undone in the shard.
        """
        return self.step(lambda shard: self._carry(shard, copy, most))

    def take(self, copy: qdrant.EdgeShard, place: Path, graphed: int) -> None:
        """Carry over the rest, and go on with the copy in the shard's place, in one step.

        Args:
            copy: Open.
            place: Of the copy.
            graphed: Points in its graph.
        """

        def switch(shard: qdrant.EdgeShard) -> None:
            self._carry(shard, copy, None)
            copy.flush()
            self._folder.switch(place, graphed)
            self._shard, self._written = copy, None
            with suppress(Exception):  # it is deleted
                shard.close()
            self._folder.clear()

        self.step(switch)

    def forget_copy(self) -> None:
        """Note what differs in the copy no more."""
        self._written = None

    def _carry(self, shard: qdrant.EdgeShard, copy: qdrant.EdgeShard, most: int | None) -> int:
        if self._written is None:
            raise Conflict("The copy of the shard misses what a failed write has undone.")
        ids = list(islice(self._written, most))
        client.carry_over(shard, copy, ids)
        self._written.difference_update(ids)
        return len(self._written)

    def _check_open(self) -> None:
        if self._ended is NotFound:
            raise NotFound(
                f"{self._provider_id}: this vector DB was deleted.", field="vector_db_id"
            )
        if self._ended is Unavailable:
            raise Unavailable(f"{self._provider_id}: this vector DB was closed.", hint="Try again.")

    def _end(self, meaning: type[Unavailable | NotFound]) -> None:
        dropping = meaning is NotFound
        with self._lock:
            was_open, self._ended = self._ended is None, self._ended or meaning
            try:
                if was_open:
                    with client.errors(self._provider_id):
                        self._shard.close()
            except ProviderError:
                if not dropping:  # what could not be flushed goes with the folder
                    raise
            finally:
                if dropping:
                    self._ended = NotFound
                    self._folder.delete()
