"""inline::faiss beyond the conformance suite: HNSW and IVF over what is written and deleted."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
import zlib
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.errors import CorralError
from corral.api.filters import Filter
from corral.api.hits import QueryChunksResponse
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._sqlite.filters import FilterCache
from corral.providers.vector_io._sqlite.matrix import EmbeddingBatch
from corral.providers.vector_io._sqlite.provider import file_name
from corral.providers.vector_io.faiss import records
from corral.providers.vector_io.faiss.base import Base
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.index import FaissIndex
from corral.providers.vector_io.faiss.provider import create
from corral.providers.vector_io.faiss.search import FaissSearch, index_kind

from ..recall import COUNT, ENOUGH, data, fill, recalls, registered

T = TypeVar("T")
DIMENSION = 16
KINDS = ("hnsw", "ivf")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. Its result is not the task's, which 3.11 renders as a string at the end."""
    results: list[T] = []

    async def keep() -> None:
        results.append(await work)

    asyncio.run(keep())
    return results[0]


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB.model_validate(
        {
            "identifier": "db",
            "provider_id": "faiss",
            "provider_resource_id": "db",
            "embedding_model": "test",
            "embedding_dimension": DIMENSION,
            **settings,
        }
    )


def vectors(count: int, seed: int = 0, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """Return seeded embeddings in clusters, of different lengths."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(40, dimension))
    rows = centers[rng.integers(40, size=count)] + 0.5 * rng.normal(size=(count, dimension))
    return (rows * rng.uniform(0.5, 2.0, size=(count, 1))).astype(np.float32)


class Fold:
    """An index and a plain copy of what is in it, which says what exact search would find."""

    def __init__(self, folder: Path, *, kind: str = "hnsw", settings: Any = None, **config: Any):
        config = {"index": kind, "approximate_from": 500, "folder": folder, **config}
        self.vector_db = vector_db(**(settings or {}))
        self.config = FaissConfig(**config)
        self.path = folder / file_name(self.vector_db)
        self.cache = self.path.with_suffix(".faiss")
        self.rows: dict[str, NDArray[np.float32]] = {}
        self.index = self.open()

    def open(self) -> FaissIndex:
        """Open the index, as another process would."""
        provider = create("faiss", self.config, Path())
        index = run(provider.open_index(self.vector_db, create=not self.path.exists()))
        assert isinstance(index, FaissIndex)
        return index

    def restart(self) -> None:
        """Close the index and open it again."""
        run(self.index.close())
        self.index = self.open()

    def add(self, start: int, count: int, seed: int = 0, *, settle: bool = True) -> None:
        """Add chunks with numbers from `start` on."""
        rows = vectors(count, seed, self.vector_db.embedding_dimension)
        names = [f"c{number:05}" for number in range(start, start + count)]
        chunks = [
            Chunk(chunk_id=name, content="hay", metadata={"n": int(name[1:])}) for name in names
        ]
        run(self.index.add_chunks(chunks, rows))
        self.rows.update(zip(names, rows, strict=True))
        if settle:
            self.index.vectors.settle()

    def delete(self, start: int, count: int) -> None:
        """Delete the chunks with numbers from `start` on."""
        names = [f"c{number:05}" for number in range(start, start + count)]
        run(self.index.delete_chunks(names))
        for name in names:
            del self.rows[name]

    def raw(self, query: NDArray[np.float32], wide: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the exact raw scores of embeddings."""
        asked = query.astype(np.float64)
        if self.vector_db.metric == "l2" and not self.vector_db.normalize:
            return np.asarray(-np.linalg.norm(wide - asked, axis=1))
        if self.vector_db.metric == "dot" and not self.vector_db.normalize:
            return np.asarray(wide @ asked)
        return np.asarray(wide @ asked / np.linalg.norm(wide, axis=1) / np.linalg.norm(asked))

    def recall(self, k: int = 10, queries: int = 40, below: int | None = None) -> float:
        """Return recall_vs_exact@k; raw scores, order and filter are checked on the way.

        Args:
            k: Hits wanted.
            queries: How many are asked.
            below: Only chunks with smaller numbers may be found.
        """
        passing = {"type": "lt", "key": "n", "value": below} if below is not None else None
        names = [name for name in self.rows if below is None or int(name[1:]) < below]
        places = {name: place for place, name in enumerate(names)}
        asked = vectors(queries, 7, self.vector_db.embedding_dimension)
        responses = self.ask_all(asked, k, passing)
        # Not before: a test replaces rows while it asks.
        wide = np.array([self.rows[name] for name in names], np.float64)
        found = 0
        for query, response in zip(asked, responses, strict=True):
            exact = self.raw(query, wide)
            hits = [places[hit.chunk.chunk_id] for hit in response.hits]
            assert len(set(hits)) == len(hits) == min(k, len(names))
            raw = [hit.explanation.legs["vector"].raw_score for hit in response.hits]
            np.testing.assert_allclose(raw, exact[hits], rtol=0, atol=1e-5)
            found += len(set(np.argsort(-exact)[:k].tolist()) & set(hits))
        return found / (queries * min(k, len(names)))

    def ask(self, query: NDArray[np.float32], k: int, filters: Any = None) -> QueryChunksResponse:
        """Search by vector."""
        return self.ask_all(query[None], k, filters)[0]

    def ask_all(
        self, queries: NDArray[np.float32], k: int, filters: Any = None
    ) -> list[QueryChunksResponse]:
        """Search by each of several vectors, one after the other, in one event loop."""

        async def each() -> list[QueryChunksResponse]:
            return [
                await self.index.query(query, k=k, mode="vector", filters=filters)
                for query in queries
            ]

        return run(each())

    def answers(self) -> list[list[tuple[str, float]]]:
        """Return what ten queries find, with scores."""
        responses = self.ask_all(vectors(10, 8), 20)
        return [[(h.chunk.chunk_id, h.score) for h in response.hits] for response in responses]


@pytest.fixture
def folds(tmp_path: Path) -> Iterator[Any]:
    """Make folds, and close them after the test."""
    made: list[Fold] = []

    def make(**options: Any) -> Fold:
        made.append(Fold(tmp_path, **options))
        return made[-1]

    yield make
    for fold in made:
        run(fold.index.close())


@contextmanager
def no_building(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail when an index is built, rather than loaded."""
    built: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(FaissSearch, "_grown", lambda *_: built.append(1))
        yield
    assert not built


# --- what is found ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_recall_at_20_000(tmp_path: Path, kind: str) -> None:
    """recall_vs_exact@10 >= 0.95 with the defaults, under every filter, through HNSW and IVF."""
    config = FaissConfig.model_validate({"index": kind, "folder": tmp_path, "build_threads": 2})
    index = run(create("faiss", config, tmp_path).open_index(registered("faiss"), create=True))
    assert isinstance(index, FaissIndex)
    run(fill(index))
    index.vectors.settle()
    # A build that was under way may have missed the last batch: a query starts the next one.
    run(index.query(data()[2][0], k=1, mode="vector"))
    index.vectors.settle()
    assert index.vectors.covered == COUNT
    found = run(recalls(index))
    assert min(found.values()) >= ENOUGH, found
    run(index.delete())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("metric", "normalize"), [("l2", True), ("l2", False), ("cosine", False)])
def test_recall_and_scores_under_every_metric(
    folds: Any, kind: str, metric: str, normalize: bool
) -> None:
    """Raw scores are those of the metric, exactly, also of embeddings that are not normalized."""
    fold = folds(kind=kind, settings={"metric": metric, "normalize": normalize})
    fold.add(0, 1500)
    assert fold.cache.exists()
    assert fold.recall() >= 0.95
    assert fold.recall(k=200) >= 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_inner_products_of_raw_embeddings_are_compared_one_by_one(folds: Any, kind: str) -> None:
    """They are no distance: an approximate index would miss the best ones."""
    fold = folds(kind=kind, settings={"metric": "dot", "normalize": False})
    fold.add(0, 1500)
    assert not fold.cache.exists()
    assert fold.recall() == 1.0
    assert index_kind(fold.vector_db, fold.config) == "flat"
    assert index_kind(vector_db(metric="dot"), fold.config) == kind


@pytest.mark.parametrize("kind", ["flat", *KINDS])
def test_small_vector_dbs_are_searched_exactly(folds: Any, kind: str) -> None:
    """Below `approximate_from` nothing is built, and nothing is missed."""
    fold = folds(kind=kind)
    fold.add(0, 499)
    assert fold.recall() == 1.0
    assert not fold.cache.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_all_hits_asked_for_are_found(folds: Any, kind: str) -> None:
    """k hits come back while there are k chunks, however few the graph or the lists would give.

    If this fails: FAISS's -1 places are dropped and nobody looks further.
    """
    fold = folds(kind=kind, ivf_nprobe=1, hnsw_ef_search=8)
    fold.add(0, 1200)
    for k in (1, 100, 999):
        for query in vectors(5, 3):
            assert len(fold.ask(query, k).hits) == k
    assert len(fold.ask(query, 50, {"type": "lt", "key": "n", "value": 30}).hits) == 30


def test_lists_take_one_byte_a_number(folds: Any) -> None:
    """An embedding of 128 numbers takes 128 bytes and three numbers, and is found all the same.

    If this fails: the lists hold embeddings, and ten million of them need 15 GiB.
    """
    fold = folds(kind="ivf", settings={"embedding_dimension": 128})
    fold.add(0, 1500)
    header = 1000
    centers = 4 * 128 * fold.index.vectors.lists
    assert fold.cache.stat().st_size < 1.1 * (1500 * (128 + 3 * 8) + centers) + header
    assert fold.recall() >= 0.95


def test_a_query_reads_more_lists_where_there_are_more(folds: Any) -> None:
    """Three for each root of their number, 16 at least, unless the operator says how many."""
    fold = folds(kind="ivf", ivf_nlist=100)
    fold.add(0, 4000)
    base, _ = fold.index.vectors._parts
    read: list[int] = []

    def probe(queries: object, k: int, selector: object, probes: int) -> NDArray[np.int64]:
        read.append(probes)
        return np.arange(k)

    base.index._probe = probe
    query = vectors(1)[0]
    base.index.places(query, 10, None)
    base.index._config = fold.config.model_copy(update={"ivf_nprobe": 7})
    base.index.places(query, 10, None)
    assert read == [30, 7]


# --- writing and deleting ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_after_the_build_is_found_at_once(folds: Any, kind: str) -> None:
    """New chunks are compared beside the index, replaced ones are passed over in it."""
    fold = folds(kind=kind)
    fold.add(0, 1000)
    built = fold.cache.stat().st_mtime_ns
    fold.add(1000, 50, seed=1)
    fold.add(10, 60, seed=2)
    fold.delete(500, 100)
    assert fold.recall() >= 0.95
    for name in ("c01007", "c00012", "c00069"):
        assert fold.ask(fold.rows[name], 1).chunks[0].chunk_id == name
    assert fold.cache.stat().st_mtime_ns == built


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_taken_into_the_index(folds: Any, kind: str, monkeypatch: Any) -> None:
    """Beyond a thousand new chunks, and a tenth, a larger index takes over; nothing is lost."""
    fold = folds(kind=kind)
    fold.add(0, 600)
    before = fold.cache.stat().st_size
    fold.add(600, 1500, seed=1)
    assert fold.cache.stat().st_size > 2 * before
    fold.add(2100, 900, seed=2)
    assert fold.recall() >= 0.95
    fold.restart()
    with no_building(monkeypatch):
        assert fold.recall() >= 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_many_deletions_lead_to_a_new_index(folds: Any, kind: str) -> None:
    """When a third is gone the index is built anew, without them; answers stay right throughout."""
    fold = folds(kind=kind)
    fold.add(0, 1500)
    before = fold.cache.stat().st_size
    for start in range(0, 900, 150):
        fold.delete(start, 150)
        assert fold.recall() >= 0.95
        fold.index.vectors.settle()
    assert fold.cache.stat().st_size < 0.75 * before


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_vector_db_works(folds: Any, kind: str) -> None:
    """Down to a few chunks, to none, and up again."""
    fold = folds(kind=kind)
    fold.add(0, 800)
    fold.delete(0, 790)
    assert fold.recall() == 1.0
    fold.index.vectors.settle()
    assert fold.recall() == 1.0
    fold.delete(790, 10)
    assert fold.ask(vectors(1)[0], 5).hits == []
    fold.index.vectors.settle()
    fold.add(0, 800, seed=5)
    assert fold.recall() >= 0.95


def test_lists_are_trained_anew_after_growth(folds: Any) -> None:
    """At four times the chunks there are twice the lists."""
    fold = folds(kind="ivf", approximate_from=1600)
    fold.add(0, 1600)
    assert fold.index.vectors.lists == 41  # 1600 / 39: fewer than 4 x 40, for want of chunks
    fold.add(1600, 3000, seed=1)
    assert fold.index.vectors.lists == 41
    fold.add(4600, 1900, seed=2)
    assert fold.index.vectors.lists == 166  # 6500 / 39
    assert fold.recall() >= 0.95


def test_a_query_that_was_overtaken_answers_from_the_newer_state(
    folds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are replaced, found by others, and taken into a new index, after a query has begun."""
    fold = folds()
    fold.add(0, 600)
    passing = FilterCache.passing
    steps = [
        lambda: fold.add(0, 600, seed=1),
        lambda: fold.recall(queries=1),  # sees that all of the index is gone
        lambda: fold.index.vectors.settle(),  # and now there is another one
    ]

    def overtaken(self: FilterCache, connection: Any, filter_: Filter | None) -> Any:
        found = passing(self, connection, filter_)
        due, steps[:] = list(steps), []
        for step in due:
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        return found

    monkeypatch.setattr(FilterCache, "passing", overtaken)
    assert fold.recall(queries=1, below=300) >= 0.9


def test_threads_share_an_index_while_it_grows(folds: Any) -> None:
    """Queries, writes, deletions and builds at once: no error, and everything is there after it."""
    fold = folds(approximate_from=100)
    fold.add(0, 300, settle=False)
    errors: list[Exception] = []

    def guarded(start: int) -> None:
        try:
            for step in range(4):
                fold.add(start + 400 * step, 400, seed=start + step, settle=False)
                fold.delete(start + 400 * step, 100)
                for query in vectors(5, step):
                    # A hit that another thread deletes before it is read is left out.
                    assert 25 <= len(fold.ask(query, 30).hits) <= 30
        except (AssertionError, CorralError) as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(10_000 * n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    fold.index.vectors.settle()
    assert run(fold.index.count()) == len(fold.rows) == 300 + 3 * 4 * 300
    assert fold.recall() >= 0.95


# --- the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_loads_the_index_and_answers_alike(
    folds: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same hits with the same scores, and nothing is built again."""
    fold = folds(kind=kind)
    fold.add(0, 1200)
    fold.add(1200, 40, seed=1)
    fold.delete(100, 50)
    before = fold.answers()
    with no_building(monkeypatch):
        fold.restart()
        fold.index.vectors.settle()
        assert fold.answers() == before


def test_another_process_loads_what_the_first_has_built(
    folds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds many new chunks takes the index from the file."""
    first = folds()
    second = folds()
    assert second.ask(vectors(1)[0], 5).hits == []
    first.add(0, 1200)
    with no_building(monkeypatch):
        second.ask(vectors(1)[0], 5)
        second.index.vectors.settle()
        second.rows = first.rows
        assert second.answers() == first.answers()


def damage_nothing(path: Path) -> None:
    """Leave the file as it is."""


def cut(path: Path) -> None:
    """Lose the end of the file."""
    path.write_bytes(path.read_bytes()[:-1000])


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def garble(path: Path) -> None:
    """Be something else."""
    path.write_bytes(b"this is no index\n" * 100)


def empty(path: Path) -> None:
    """Be empty."""
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, garble, empty])
def test_a_damaged_file_is_built_anew(
    folds: Any, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It never reaches FAISS, which would crash; answers are right at once and the file is mended.

    If this fails with a crash of the interpreter: the checksum is not looked at first.
    """
    fold = folds()
    fold.add(0, 1200)
    run(fold.index.close())
    damage(fold.cache)
    with caplog.at_level(logging.WARNING):
        fold.index = fold.open()
    assert "is damaged" in caplog.text
    assert fold.recall() >= 0.95
    fold.index.vectors.settle()
    caplog.clear()
    fold.restart()
    assert caplog.text == ""
    assert fold.recall() >= 0.95


def test_a_file_without_its_chunk_file_is_not_believed(
    folds: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A chunk file restored from a copy, with other chunks under the same row numbers since.

    If this fails: vectors of chunks that no longer exist decide the ranking.
    """
    fold = folds()
    fold.add(0, 600)
    run(fold.index.close())
    shutil.copy(fold.path, tmp_path / "copy")
    fold.index = fold.open()
    fold.add(600, 1200, seed=1)
    run(fold.index.close())
    shutil.copy(tmp_path / "copy", fold.path)
    for number in range(600, 1800):
        del fold.rows[f"c{number:05}"]
    fold.config = fold.config.model_copy(update={"index": "flat"})
    fold.index = fold.open()
    fold.add(600, 1300, seed=2)
    run(fold.index.close())
    fold.config = fold.config.model_copy(update={"index": "hnsw"})
    with caplog.at_level(logging.WARNING):
        fold.index = fold.open()
    assert "does not match its chunk file" in caplog.text
    assert fold.recall() >= 0.95
    fold.index.vectors.settle()
    assert fold.recall() >= 0.95


@pytest.mark.parametrize("change", [{"hnsw_m": 8}, {"index": "ivf"}])
def test_other_settings_build_another_index(folds: Any, change: Any) -> None:
    """A file that was built with other settings is not used; settings of queries need no build."""
    fold = folds()
    fold.add(0, 1200)
    before = fold.cache.read_bytes()
    fold.config = fold.config.model_copy(update={"hnsw_ef_search": 64})
    fold.restart()
    fold.index.vectors.settle()
    assert fold.cache.read_bytes() == before
    fold.config = fold.config.model_copy(update=change)
    fold.restart()
    fold.index.vectors.settle()
    assert fold.cache.read_bytes() != before
    assert fold.recall() >= 0.95


def test_lists_of_embeddings_are_built_anew_as_codes(folds: Any) -> None:
    """A file of a Corral before codes, whose header does not know them, is not used."""
    fold = folds(kind="ivf")
    fold.add(0, 1200)
    header, rest = fold.cache.read_bytes()[: -records.CRC_BYTES].split(b"\n", 1)
    known = json.loads(header)
    assert known.pop("codes") == "int8"
    old = json.dumps(known).encode() + b"\n" + rest
    fold.cache.write_bytes(old + zlib.crc32(old).to_bytes(records.CRC_BYTES, "little"))
    fold.restart()
    fold.index.vectors.settle()
    assert b'"codes": "int8"' in fold.cache.read_bytes().split(b"\n", 1)[0]
    assert fold.recall() >= 0.95


def test_the_file_is_replaced_whole_or_not_at_all(
    folds: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk leaves the old file, no leftovers, a line in the log, and an index that works."""
    fold = folds()
    fold.add(0, 600)
    before = fold.cache.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        fold.add(600, 1500, seed=1)
    assert "could not be built or stored: [Errno 28]" in caplog.text
    assert fold.cache.read_bytes() == before
    assert list(fold.path.parent.glob("*.tmp")) == []
    assert fold.recall() >= 0.95
    fold.restart()
    assert fold.recall() >= 0.95


def test_leftovers_of_killed_processes_are_removed(
    folds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old half-written files go with the next build, all of them with the vector DB."""
    fold = folds()
    leftover = fold.cache.with_name(f"{fold.cache.name}.x.tmp")
    stranger = fold.cache.with_name("other.faiss.x.tmp")
    leftover.touch()
    stranger.touch()
    fold.add(0, 600)
    assert leftover.exists()  # it is young: another process may be writing it
    monkeypatch.setattr(records, "STALE_SECONDS", 0.0)
    fold.add(600, 1500, seed=1)
    assert not leftover.exists()
    leftover.touch()
    run(fold.index.delete())
    assert list(fold.path.parent.iterdir()) == [stranger]


# --- building ---------------------------------------------------------------------------------


class SlowBuild:
    """Holds every build at its first slice until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices = 0
        self.started, self.go_on = threading.Event(), threading.Event()
        extend = Base.extend

        def slow(base: Base, batch: EmbeddingBatch) -> None:
            self.slices += 1
            self.started.set()
            assert self.go_on.wait(30)
            extend(base, batch)

        monkeypatch.setattr(Base, "extend", slow)


def test_queries_and_writes_do_not_wait_for_a_build(
    folds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an index is being built everything is found, exactly; what was written then, too."""
    build = SlowBuild(monkeypatch)
    fold = folds()
    fold.add(0, 1200, settle=False)
    assert build.started.wait(30)
    assert fold.recall() == 1.0
    fold.add(1200, 30, seed=1, settle=False)
    fold.delete(0, 100)
    assert fold.recall() == 1.0
    assert not fold.cache.exists()
    build.go_on.set()
    fold.index.vectors.settle()
    assert fold.cache.exists()
    assert fold.recall() >= 0.95


def test_closing_stops_a_build(folds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """delete() waits for one slice and not for the build; nothing is written afterwards."""
    build = SlowBuild(monkeypatch)
    fold = folds()
    fold.add(0, 5000, settle=False)
    assert build.started.wait(30)
    deletion = threading.Thread(target=asyncio.run, args=(fold.index.delete(),))
    deletion.start()
    assert fold.index.vectors.stopping.wait(30)
    build.go_on.set()
    deletion.join()
    assert build.slices == 1
    assert list(fold.path.parent.iterdir()) == []
    assert not any(thread.name == "faiss-build" for thread in threading.enumerate())
