"""The HNSW graph of a shard, built in a process of its own.

The engine holds the interpreter's lock while it builds a graph: for seconds at 20,000 points, for
minutes at 100,000. So another process builds it on a copy of the shard, while this one answers and
writes on. What was written meanwhile is then written to the copy, too, and the copy takes the
shard's place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import qdrant_edge as qdrant

from corral.api.errors import CorralError, ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import Debouncer
from corral.providers.vector_io.qdrant.edge import client
from corral.providers.vector_io.qdrant.edge.shard import Shard

GRAPH_FROM_KB = 15_000
"""Embeddings from which on a graph is built: to compare so many takes a millisecond."""

GRAPH_SHARE = 0.05
"""Points written since, as a share of those in the graph, from which on it is built again."""

LOAD = 100
"""Points of one write from which on it belongs to a load, whose end is waited for."""

BATCH = 200
"""Points that are written to the copy in one step; nobody else takes a step meanwhile."""

NICE = 10
"""How far the building process stands behind others."""

_LOG = logging.getLogger(__name__)


class GraphBuilder:
    """Has a graph built when enough was written, once a load is over.

    Args:
        vector_db: The registration.
        shard: Whose graph it is.
        graphed: Points that are in it.
        count: Points that are in the shard.

    Attributes:
        graphed: Points that were in the graph when it was built; 0 for no graph.
        changed: Points written and deleted since.
    """

    def __init__(self, vector_db: VectorDB, shard: Shard, graphed: int, count: int) -> None:
        self._vector_db = vector_db
        self._shard = shard
        self.graphed = graphed
        self.changed = abs(count - graphed)
        self._renewal = Debouncer(self._build)
        self._asked = self._settling = False
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._building = threading.Lock()  # another event loop may ask while one builds

    def ask(self, points: int = 0) -> None:
        """Have a graph built soon if it is time for one.

        Args:
            points: How many were just written.
        """
        if self._is_due() and (points >= LOAD or not self._asked):
            self._asked = True
            self._renewal.schedule()

    def _is_due(self) -> bool:
        if not self.graphed:
            return self.changed * self._vector_db.embedding_dimension >= GRAPH_FROM_KB * 1024 / 4
        return self.changed >= (1 if self._settling else GRAPH_SHARE * self.graphed)

    async def settle(self) -> None:
        """Wait until all points are in the graph, where they are enough for one."""
        self._settling = True
        try:
            while self._is_due() and not self._stopping.is_set():
                self.ask()
                await self._renewal.flush()
                await asyncio.to_thread(self._wait)
        finally:
            self._settling = False

    def _wait(self) -> None:
        with self._building:
            pass

    async def stop(self) -> None:
        """Build no more; what has begun ends without a graph."""
        self._end()
        await self._renewal.cancel()

    def _end(self) -> None:
        with self._starting:
            self._stopping.set()
            if self._process:
                self._process.kill()

    async def _build(self) -> None:
        """Build a graph. After a failure the next attempt waits for as many writes again."""
        name, began = self._vector_db.identifier, time.monotonic()
        try:
            built = await asyncio.to_thread(self._replace_if_due)
        except asyncio.CancelledError:
            self._end()
            raise
        except (CorralError, OSError) as error:
            if not self._stopping.is_set():
                self.changed = 0
                _LOG.warning("No HNSW graph for %r: %s", name, error)
        else:
            if built:
                _LOG.info("HNSW graph of %r built in %.1f s.", name, time.monotonic() - began)
        finally:
            self._asked = False

    def _replace_if_due(self) -> bool:
        with self._building:
            if not self._is_due():
                return False
            self._replace()
            return True

    def _replace(self) -> None:
        """Put a copy that has a graph in the shard's place; a failure leaves nothing of it."""
        place, copy = self._shard.new_place(), None
        try:
            graphed = self._shard.copy_to(place)
            changed = self.changed
            self._build_at(place)
            with client.errors(self._vector_db.provider_id):
                copy = qdrant.EdgeShard.load(str(place), client.config(self._vector_db))
            while self._shard.carry_over(copy, BATCH) > BATCH:
                pass
            if hasattr(os, "sync"):
                os.sync()  # the place of the old files is taken by files that are on the disk
            self._shard.take(copy, place, graphed)
        except BaseException:
            self._shard.forget_copy()
            if copy:
                copy.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        self.graphed = graphed
        self.changed -= changed

    def _build_at(self, place: Path) -> None:
        """Have another process build the graph of a shard.

        Raises:
            ProviderError: It failed.
        """
        by_distance = self._vector_db.metric is Metric.L2 and not self._vector_db.normalize
        dimension = self._vector_db.embedding_dimension
        arguments = [place, dimension, int(by_distance), client.FULL_SCAN_KB]
        # -P: a folder named corral where the server happens to be started is not imported.
        command = [sys.executable, "-P", "-m", __spec__.name, *map(str, arguments)]
        with self._starting:
            if self._stopping.is_set():
                raise ProviderError("The vector DB was closed.")
            self._process = subprocess.Popen(  # noqa: S603 - runs this interpreter, not a shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # it may quote data
            )
        ended = self._process.wait()
        self._process = None
        if ended:
            raise ProviderError(f"The process that builds it ended with {ended}.")


def build(place: str, dimension: str, by_distance: str, full_scan_kb: str) -> None:
    """Build the graph of a shard that nobody has open.

    Args:
        place: Its folder.
        dimension: Of the embeddings.
        by_distance: "1" if they are compared by Euclidean distance, "0" for the inner product.
        full_scan_kb: See `client.FULL_SCAN_KB`.
    """
    if hasattr(os, "nice"):
        os.nice(NICE)
    client.FULL_SCAN_KB = int(full_scan_kb)
    settings = client.shard_config(int(dimension), by_distance=by_distance == "1", graph=True)
    shard = qdrant.EdgeShard.load(place, settings)
    shard.optimize()
    shard.close()


if __name__ == "__main__":
    build(*sys.argv[1:])
