"""inline::faiss beyond the conformance suite: HNSW and IVF over what is written and deleted."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import CorralError
from corral.api.filters import Filter
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.provider import create
from corral.providers.vector_io.store.faiss.base import Base
from corral.providers.vector_io.store.faiss.client import Found
from corral.providers.vector_io.store.faiss.search import index_kind
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.matrix import EmbeddingBatch

from ..engines import engine_of
from ..recall import COUNT, ENOUGH, data, fill, recalls, registered
from .fold import KINDS, no_building, run, vector_db, vectors

# --- what is found ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_recall(tmp_path: Path, kind: str) -> None:
    """recall_vs_exact@10 >= 0.95 with the defaults, under every filter, through HNSW and IVF.

    Chunks come topic by topic, which is harder than any mixture of them. If this fails: lists that
    were made of the first chunks serve all later ones, or a walk ends among near chunks, none of
    which passes the filter.
    """
    config = FaissConfig.model_validate({"index": kind, "folder": tmp_path, "build_threads": 2})
    index = run(create("faiss", config, tmp_path).open_index(registered("faiss"), create=True))
    run(fill(index, by_topic=True))
    run(index.settle())
    # A build that was under way may have missed the last batch: a query starts the next one.
    run(index.query(data(by_topic=True)[2][0], k=1, mode="vector"))
    run(index.settle())
    assert engine_of(index).searcher.covered == COUNT
    found = run(recalls(index, by_topic=True))
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
    centers = 4 * 128 * fold.searcher.lists
    assert fold.cache.stat().st_size < 1.1 * (1500 * (128 + 3 * 8) + centers) + header
    assert fold.recall() >= 0.95


def test_a_query_reads_more_lists_where_there_are_more(folds: Any) -> None:
    """Three for each root of their number, 16 at least, unless the operator says how many."""
    fold = folds(kind="ivf", ivf_nlist=100)
    fold.add(0, 4000)
    base, _ = fold.searcher._parts
    read: list[int] = []

    def probe(queries: object, k: int, selector: object, probes: int) -> Found:
        read.append(probes)
        return np.arange(k, dtype=np.float32), np.arange(k)

    base.index._probe = probe
    query = vectors(1)[0]
    base.index.places(query, 10, None)
    base.index._config = fold.config.model_copy(update={"ivf_nprobe": 7})
    base.index.places(query, 10, None)
    assert read == [30, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_many_equal_chunks_are_found(folds: Any, kind: str) -> None:
    """Where more chunks tie at the cut than FAISS is asked for, the first ids are found."""
    fold = folds(kind=kind)
    rows = vectors(1500)
    rows[np.random.default_rng(3).permutation(1500)[:300]] = rows[0]
    same = np.flatnonzero((rows == rows[0]).all(axis=1))
    chunks = [Chunk(chunk_id=f"c{n:05}", content="hay") for n in range(1500)]
    run(fold.index.add_chunks(chunks[750:], rows[750:]))
    run(fold.index.add_chunks(chunks[:750], rows[:750]))
    fold.searcher.settle()
    assert fold.searcher.covered >= 750
    found = [one.chunk_id for one in fold.ask(rows[0], 10).chunks]
    assert found == [f"c{n:05}" for n in same[:10]]


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
        fold.searcher.settle()
    assert fold.cache.stat().st_size < 0.75 * before


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_vector_db_works(folds: Any, kind: str) -> None:
    """Down to a few chunks, to none, and up again."""
    fold = folds(kind=kind)
    fold.add(0, 800)
    fold.delete(0, 790)
    assert fold.recall() == 1.0
    fold.searcher.settle()
    assert fold.recall() == 1.0
    fold.delete(790, 10)
    assert fold.ask(vectors(1)[0], 5).hits == []
    fold.searcher.settle()
    fold.add(0, 800, seed=5)
    assert fold.recall() >= 0.95


def test_lists_are_trained_anew_after_growth(folds: Any) -> None:
    """At four times the chunks there are twice the lists."""
    fold = folds(kind="ivf", approximate_from=1600)
    fold.add(0, 1600)
    assert fold.searcher.lists == 41  # 1600 / 39: fewer than 4 x 40, for want of chunks
    fold.add(1600, 3000, seed=1)
    assert fold.searcher.lists == 41
    fold.add(4600, 1900, seed=2)
    assert fold.searcher.lists == 166  # 6500 / 39
    assert fold.recall() >= 0.95


def test_more_of_the_same_is_no_reason_to_train_anew(folds: Any) -> None:
    """Lists serve chunks like those that they were made of, though most of these are equal.

    If this fails: new rows are compared with what is usual among the old ones, such as a distance
    of 0, and the lists are built from scratch whenever an index grows by a tenth.
    """
    fold = folds(kind="ivf")
    rows = np.concatenate([vectors(1600), np.tile(vectors(1, 5), (2400, 1))])
    rows = rows[np.random.default_rng(1).permutation(len(rows))]
    chunks = [Chunk(chunk_id=f"c{n:05}", content="hay") for n in range(len(rows))]
    for part in (slice(2500), slice(2500, 4000)):
        run(fold.index.add_chunks(chunks[part], rows[part]))
        fold.searcher.settle()
    base, _ = fold.searcher._parts
    assert (len(base), base.trained) == (4000, 2500)


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
        lambda: fold.searcher.settle(),  # and now there is another one
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
    fold.searcher.settle()
    assert run(fold.index.count()) == len(fold.rows) == 300 + 3 * 4 * 300
    assert fold.recall() >= 0.95


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
    fold.searcher.settle()
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
    assert fold.searcher.stopping.wait(30)
    build.go_on.set()
    deletion.join()
    assert build.slices == 1
    assert list(fold.path.parent.iterdir()) == []
    assert not any(thread.name == "faiss-build" for thread in threading.enumerate())
