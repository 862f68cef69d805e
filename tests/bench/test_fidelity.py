"""A backend that misses neighbors is told from one that maps ids, scores or filters wrongly."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import SHARES, synthetic_corpus
from corral.bench.fidelity.results import Answers, fidelity_rows
from corral.bench.fidelity.run import FidelityPlan, gather, make_fidelity_plan, run_fidelity
from corral.bench.peers.exact import Exact
from corral.bench.report.report import begin_report, read_report
from corral.bench.report.rows import FidelityRow
from corral.bench.report.views import agreement
from corral.bench.system import Ranked, Search

SIZE = 300
CORPUS = synthetic_corpus(SIZE, dimension=32, questions=12)


class Deleting(Exact):
    """Right in everything, deletion included."""

    async def delete(self, chunk_ids: list[str]) -> None:
        keep = [n for n, chunk in enumerate(self._chunks) if chunk.chunk_id not in set(chunk_ids)]
        chunks, matrix = [self._chunks[n] for n in keep], self._matrix[keep]
        await self.prepare(CORPUS.collection)
        await self.add(chunks, matrix)
        await self.build()


class Reversed(Exact):
    """Distances taken for scores: the farthest come first."""

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        worst = super()._nearest(embedding, SIZE, passing)[::-1][:k]
        return [(one, 1 - score, -raw) for one, score, raw in worst]


class Shuffled(Exact):
    """Rows and ids were put together in different orders."""

    async def build(self) -> None:
        await super().build()
        self._ids = [self._ids[n] for n in np.random.default_rng(1).permutation(SIZE)]


class Stale(Deleting):
    """Deleting moves the rows, and the map from rows to ids stays."""

    async def delete(self, chunk_ids: list[str]) -> None:
        before = self._ids
        await super().delete(chunk_ids)
        self._ids = before


class LateFilter(Exact):
    """The filter is applied to the top k."""

    def find(self, asked: Search) -> Ranked:
        found = super().find(replace(asked, below=None))
        passing = self._shares < (asked.below or SHARES)
        rows = {one: n for n, one in enumerate(self._ids)}
        return [hit for hit in found if passing[rows[hit[0]]]]


class NoFilter(Exact):
    """The filter is ignored."""

    def find(self, asked: Search) -> Ranked:
        return super().find(replace(asked, below=None))


class Approximate(Exact):
    """Every fifth chunk is never found."""

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        seen = np.arange(SIZE) % 5 != 0
        return super()._nearest(embedding, k, seen if passing is None else passing & seen)


class WorstHits(Exact):
    """The k worst hits of each leg, in the right order with the right scores."""

    def _best(
        self, scores: NDArray[np.floating], k: int, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        found = np.flatnonzero(scores > 0) if rows is None else np.arange(len(scores))
        order: NDArray[np.int64] = found[np.argsort(-scores[found], kind="stable")][-k:]
        return order


class Wordless(Exact):
    """Keyword search returns what shares no word with the question, as a foreign system might."""

    def _worded(
        self, text: str, k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        apart = self._words.scores(text) == 0
        found = np.flatnonzero(apart if passing is None else apart & passing)
        return [(self._ids[n], 1 / place, 1 / place) for place, n in enumerate(found[:k], start=1)]


class FarAndWordless(Wordless, WorstHits):
    """Wrong by both."""


class OtherMetric(Exact):
    """Neighbors of another vector than was asked for, with the scores that they should have."""

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        wanted = {one for one, _, _ in super()._nearest(np.abs(embedding), k, passing)}
        everything = super()._nearest(embedding, SIZE, passing)
        return [hit for hit in everything if hit[0] in wanted]


class OwnScores(Exact):
    """1 / (1 + distance) where the contract says (1 + cosine) / 2."""

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        return [
            (one, 1 / (1 + (2 - 2 * raw) ** 0.5), raw)
            for one, _, raw in super()._nearest(embedding, k, passing)
        ]


def plan_of(folder: Path, modes: tuple[SearchMode, ...] = (SearchMode.VECTOR,)) -> FidelityPlan:
    """Return what every toy is asked."""
    return make_fidelity_plan(
        backends=["exact"],
        out=folder / "out",
        home=folder / "home",
        synthetic=[str(SIZE)],
        modes=[mode.value for mode in modes],
        filters=["10%"],
    )


def answers_of(
    kind: type[Exact],
    folder: Path,
    modes: tuple[SearchMode, ...] = (SearchMode.VECTOR,),
    *,
    contract: bool = True,
) -> Answers:
    """Return what a toy answers; its scores are held against the contract's."""

    async def ask() -> Answers:
        system = kind(kind.__name__, folder)
        await system.prepare(CORPUS.collection)
        return await gather(system, CORPUS, plan_of(folder, modes))

    return asyncio.run(ask()).model_copy(update={"contract": contract})


def rows_of(kind: type[Exact], folder: Path) -> dict[tuple[str, int], FidelityRow]:
    """Return the rows against brute force by data set and k."""
    rows = fidelity_rows(CORPUS, [answers_of(kind, folder)])
    return {(row.data_set, row.k): row for row in rows}


@pytest.mark.parametrize("kind", [Exact, Deleting])
def test_what_is_right_agrees(kind: type[Exact], tmp_path: Path) -> None:
    """Brute force held against brute force agrees in all figures, after a deletion, too."""
    rows = rows_of(kind, tmp_path)
    assert set(rows) == {("synthetic-300", k) for k in (1, 10, 100)} | {
        ("synthetic-300, 10 % filter", 10)
    }
    for row in rows.values():
        assert (row.verdict, row.note) == ("agrees", "")
        assert row.recall_vs_exact is not None
        assert row.overlap is not None
        assert row.rank_biased_overlap is not None
        assert row.recall_vs_exact.mean == row.overlap.mean == 1
        assert row.rank_biased_overlap.mean == pytest.approx(1)
        assert row.score_difference_max == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Reversed, "a reversed order"),
        (Shuffled, "ids are mixed up"),
        (Stale, "the map from rows to ids is stale"),
        (LateFilter, "the filter is applied after the top k"),
        (NoFilter, "do not pass the filter"),
        (OwnScores, "scores or places that belong to other chunks"),
    ],
)
def test_a_defect_is_a_mapping_defect_and_its_cause_is_named(
    kind: type[Exact], cause: str, tmp_path: Path
) -> None:
    """Each broken toy gets the verdict `mapping`, and the likeliest cause comes first.

    If this fails: a backend with such a mistake would be taken for an approximate one.
    """
    row = rows_of(kind, tmp_path)["synthetic-300", 10]
    assert row.verdict == "mapping"
    assert cause in row.note.split(";")[0], row.note


@pytest.mark.parametrize(
    ("kind", "mode", "contract"),
    [
        *((WorstHits, mode, True) for mode in SearchMode),
        (WorstHits, SearchMode.VECTOR, False),
        (FarAndWordless, SearchMode.HYBRID, False),
        (Wordless, SearchMode.KEYWORD, False),
        (OtherMetric, SearchMode.VECTOR, True),
    ],
)
def test_other_hits_than_the_best_are_a_defect(
    kind: type[Exact], mode: SearchMode, contract: bool, tmp_path: Path
) -> None:
    """Right scores and a falling order do not make an answer right: its hits have to be the best.

    If this fails: a backend that returns the k worst hits passes for an approximate one.
    """
    found = answers_of(kind, tmp_path, (mode,), contract=contract)
    for row in fidelity_rows(CORPUS, [found]):
        assert row.verdict == "mapping", row
        assert "other hits than the best ones" in row.note


@pytest.mark.parametrize("mode", SearchMode)
@pytest.mark.parametrize("contract", [True, False])
def test_what_misses_neighbors_or_counts_otherwise_is_no_defect(
    mode: SearchMode, contract: bool, tmp_path: Path
) -> None:
    """An index that misses a fifth is approximate in all modes, whatever its formula is."""
    found = answers_of(Approximate, tmp_path, (mode,), contract=contract)
    assert {row.verdict for row in fidelity_rows(CORPUS, [found])} <= {"agrees", "approximate"}


def test_the_report_names_only_the_wrong_one(tmp_path: Path) -> None:
    """Of two backends that differ, the findings name the one that is wrong by itself.

    If this fails: a healthy backend is said to return wrong scores, or to miss neighbors.
    """
    for kind, said in (
        (WorstHits, "WorstHits returned wrong scores, ids or hits."),
        (Approximate, "Approximate missed neighbors or used another formula."),
    ):
        systems = [answers_of(one, tmp_path) for one in (Exact, kind, Deleting)]
        report = begin_report("x", 0).with_rows(*fidelity_rows(CORPUS, systems))
        assert agreement(report) == {"synthetic-300": said}


def test_a_missed_neighbor_is_no_defect(tmp_path: Path) -> None:
    """An index that never finds a fifth of the chunks is approximate, and its recall says so."""
    row = rows_of(Approximate, tmp_path)["synthetic-300", 10]
    assert row.verdict == "approximate"
    assert row.recall_vs_exact is not None
    assert 0.6 < row.recall_vs_exact.mean < 0.95
    assert row.score_difference_max == pytest.approx(0, abs=1e-6)


def test_pairs_are_compared(tmp_path: Path) -> None:
    """Two systems have a row for each round that both answered; a defect of one is named."""
    systems = [answers_of(kind, tmp_path) for kind in (Exact, Approximate, Shuffled)]
    pairs = [row for row in fidelity_rows(CORPUS, systems) if row.reference != "exact"]
    assert {(row.backend, row.reference) for row in pairs} == {
        ("Exact", "Approximate"),
        ("Exact", "Shuffled"),
        ("Approximate", "Shuffled"),
    }
    verdicts = {row.reference: row for row in pairs if row.backend == "Exact" and row.k == 10}
    assert verdicts["Approximate"].verdict == "approximate"
    assert (verdicts["Shuffled"].verdict, verdicts["Shuffled"].note) == (
        "mapping",
        "wrong by itself: Shuffled",
    )


def test_a_run_compares_backends_and_resumes(tmp_path: Path) -> None:
    """sqlite agrees with brute force in all modes; a resumed run takes the answers as they are."""
    options: dict[str, Any] = {
        "backends": ["sqlite", "exact"],
        "out": tmp_path / "out",
        "home": tmp_path / "home",
        "synthetic": ["200"],
        "filters": ["10%"],
    }
    report = asyncio.run(run_fidelity(make_fidelity_plan(**options)))
    assert not report.failures
    rows = [row for row in report.fidelity if row.reference == "exact"]
    assert {row.mode for row in rows} == {"vector", "keyword", "hybrid"}
    assert {(row.backend, row.verdict) for row in rows} == {
        ("sqlite", "agrees"),
        ("exact", "agrees"),
    }
    kept = list((tmp_path / "out" / "cells").iterdir())
    assert len(kept) == 2
    times = [path.stat().st_mtime_ns for path in kept]
    again = asyncio.run(run_fidelity(make_fidelity_plan(**options, resume=True)))
    assert [path.stat().st_mtime_ns for path in kept] == times
    assert again.fidelity == report.fidelity == read_report(tmp_path / "out").fidelity
