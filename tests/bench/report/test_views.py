"""Which rows a section shows, and in which order."""

from __future__ import annotations

import pytest

from corral.bench.quality.metrics import NDCG
from corral.bench.report import by_query, views
from corral.bench.report.blocks import Table
from corral.bench.report.quality_sections import heat_map, quality_table
from corral.bench.report.report import Report
from corral.bench.report.rows import TuneTrial
from corral.bench.report.speed_sections import growth
from corral.bench.report.sweep import sweeps

from .example_report import SETS


def test_quality_begins_with_the_best(report: Report) -> None:
    """By data set, nDCG@10 falls from row to row, and no row is lost."""
    sets = views.quality_by_set(report)
    assert list(sets) == list(SETS)
    assert sum(map(len, sets.values())) == len(report.quality)
    for rows in sets.values():
        values = [row.metrics[NDCG].mean for row in rows]
        assert values == sorted(values, reverse=True)


def test_the_heat_map_has_a_place_for_what_was_not_measured(report: Report) -> None:
    """A system without a row on a data set has None there; rows are ordered by mode."""
    kept = [row for row in report.quality if (row.backend, row.data_set) != ("faiss", "zh-like")]
    found = report.model_copy(update={"quality": tuple(kept)})
    rows = views.heat_rows(found, list(SETS))
    faiss = next(
        values for mode, system, _, values in rows if (mode, system) == ("vector", "faiss")
    )
    assert [value is None for value in faiss] == [name == "zh-like" for name in SETS]
    modes = [mode for mode, *_ in rows]
    assert modes == sorted(modes, key=views.mode_order)
    section = heat_map(found)
    assert section is not None
    ends = [f"{end(row.metrics[NDCG].mean for row in kept):.3f}" for end in (min, max)]
    assert f"from {ends[0]} to {ends[1]}" in str(section.blocks[0])


def test_the_front_is_what_nobody_beats(report: Report) -> None:
    """On the front: no other point has as much of both and more of one; each other point is beaten.

    If this fails: a setting is praised that another one dominates.
    """
    panels = views.fronts(report)
    assert panels
    for points in panels.values():
        for point in points:
            mine = point.recall, point.row.throughput_qps
            beaten = any(
                other.recall >= mine[0]
                and other.row.throughput_qps >= mine[1]
                and (other.recall, other.row.throughput_qps) != mine
                for other in points
            )
            assert point.on_front != beaten


def test_latencies_are_serial_and_unfiltered(report: Report) -> None:
    """Neither a filtered row nor one of several queries at once is among the distributions."""
    rows = [r for modes in views.latencies(report).values() for rs in modes.values() for r in rs]
    assert len(rows) == len(report.speed) - 1
    assert all(row.concurrency == 1 and row.selectivity is None for row in rows)


def test_a_sweep_needs_two_weights_of_one_setting(report: Report) -> None:
    """Weights are joined where all else is equal; single modes and rrf are its references."""
    found = sweeps(report)
    assert [sweep.title for sweep in found] == [
        *(f"{name}: memory" for name in SETS),
        "handbook: sqlite, training half",
    ]
    (points,) = found[0].series.values()
    assert [alpha for alpha, _ in points] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert set(found[0].references) == {"vector", "keyword", "rrf"}
    alone = [r for r in report.quality if r.fusion in (None, "weighted(alpha=0.2)")]
    few = report.model_copy(update={"quality": tuple(alone), "tune": ()})
    assert sweeps(few) == []


def test_changes_are_ordered_and_add_up(report: Report) -> None:
    """A row's changes have the comparison's mean, begin with the greatest win and have texts."""
    row = next(row for row in report.quality if row.comparison)
    assert row.comparison is not None
    changes = by_query.changes(report, row)
    differences = [change.difference for change in changes]
    assert differences == sorted(differences, reverse=True)
    assert sum(differences) / len(differences) == pytest.approx(row.comparison.difference.mean)
    texts = report.data_sets[0].query_texts
    assert all(change.text == texts[change.query_id] for change in changes)


def test_wins_and_losses_begin_with_the_greatest(report: Report) -> None:
    """A query without a change is in neither; each has its documents with their texts."""
    row = next(row for row in report.quality if row.comparison)
    found = by_query.changes(report, row)
    wins, losses = by_query.wins(found), by_query.losses(found)
    assert wins[0].difference == max(change.difference for change in found)
    assert losses[0].difference == min(change.difference for change in found)
    assert all(change.difference for change in (*wins, *losses))
    documents = wins[0].documents
    assert [document.document_id for document, _ in documents] == ["d0", "d1", "d2"]
    assert all(text.startswith("An excerpt of ") for _, text in documents)
    plain = row.model_copy(update={"shown": {}})
    assert by_query.changes(report, plain)[0].documents == ()


def test_a_few_samples_make_no_box(report: Report) -> None:
    """Quartiles of fewer than 20 latencies are not drawn."""
    row = next(row for row in report.speed if row.samples_ms)
    assert views.spread(row) is not None
    assert views.spread(row.model_copy(update={"samples_ms": row.samples_ms[:19]})) is None


def test_backends_that_agree_share_a_sweep_and_a_finding(report: Report) -> None:
    """Equal figures on another backend make no second chart, and both are named."""
    rows = [row for row in report.quality if row.backend == "memory"]
    twins = [row.model_copy(update={"backend": "twin"}) for row in rows]
    both = report.model_copy(update={"quality": (*rows, *twins), "tune": ()})
    assert [sweep.title for sweep in sweeps(both)] == [f"{name}: memory, twin" for name in SETS]
    best = views.quality_by_set(both)["zh-like"][0]
    name = views.name_of(views.quality_by_set(both)["zh-like"], best)
    assert name.endswith("on memory and twin")


def test_one_set_of_several_sizes_is_one_build_chart(report: Report) -> None:
    """synthetic-1k and synthetic-20k are sizes of one set; a name that ends otherwise is whole."""
    build = report.builds[0]
    names = ("synthetic-500", "synthetic-20k", "synthetic-1M", "xquad-de")
    rows = [build.model_copy(update={"data_set": name}) for name in names]
    found = views.builds(report.model_copy(update={"builds": tuple(rows)}))
    assert {name: len(rows) for name, rows in found.items()} == {"synthetic": 3, "xquad-de": 1}


def test_growth_has_the_exponent_of_each_curve(report: Report) -> None:
    """Memory in the example is proportional to size; figures of one size have no curve.

    If this fails: a reader believes that a system stays fast at sizes at which it does not.
    """
    [(name, curves)] = views.growth(report).items()
    assert name == "clustered"
    assert set(curves) >= {"memory MiB", "disk MiB", "inserts per second"}
    assert "memory" not in curves["disk MiB"]
    for curve in curves["memory MiB"].values():
        assert [size for size, _ in curve] == [1_000, 10_000, 100_000]
        assert views.exponent(curve) == pytest.approx(1.0)
    assert views.exponent([(10, 2.0), (1000, 20.0)]) == pytest.approx(0.5)
    small = tuple(row for row in report.builds if row.size == 1_000)
    assert views.growth(report.model_copy(update={"builds": small, "speed": ()})) == {}
    section = growth(report)
    assert section is not None
    [table] = [block for block in section.blocks if isinstance(block, Table)]
    place = [column.name for column in table.columns].index("memory MiB")
    assert {row[place].text for row in table.cells} == {"1.00"}


def test_a_tuning_is_drawn_with_what_matters(report: Report) -> None:
    """Of many rrf settings the best is the reference; equal lines are one; re-ranked ones are none.

    If this fails: the chart of a real tuning run is a thicket.
    """
    section = report.tune[0]
    weighted = [trial for trial in section.trials if "ranker" in trial.settings]

    def like(ranker: dict[str, object], **more: object) -> list[TuneTrial]:
        return [
            trial.model_copy(
                update={
                    "settings": {
                        **trial.settings,
                        "ranker": {**trial.settings["ranker"], **ranker},
                        **more,
                    }
                }
            )
            for trial in weighted
        ]

    rrf = [
        trial.model_copy(update={"settings": {"search_mode": "hybrid", "ranker": {"type": "rrf"}}})
        for trial in weighted
    ]
    trials = (*section.trials, *like({"candidates": 9}), *like({}, rerank={"type": "mmr"}), *rrf)
    many = section.model_copy(update={"trials": trials})
    (sweep,) = sweeps(report.model_copy(update={"quality": (), "tune": (many,)}))
    assert list(sweep.series) == ["weighted = weighted, candidates 9"]
    assert len(sweep.series.popitem()[1]) == len(weighted)
    assert sweep.references["best rrf"].mean == max(trial.train.mean for trial in weighted)


def test_backends_that_agree_are_one_among_the_wins_and_losses(report: Report) -> None:
    """A twin adds no entry but its name; every system with a baseline is in one entry."""
    rows = [row for row in report.quality if row.data_set == "zh-like"]
    twins = [r.model_copy(update={"backend": "twin"}) for r in rows if r.backend == "faiss"]
    more = report.model_copy(update={"quality": (*rows, *twins)})
    (found,) = by_query.compared(more).values()
    (alone,) = by_query.compared(report.model_copy(update={"quality": tuple(rows)})).values()
    assert len(found) == len(alone) == len([row for row in rows if row.comparison])
    assert "hybrid:rrf on faiss and twin" in [name for name, _, _ in found]


def test_what_agrees_is_one_line(report: Report) -> None:
    """Backends of equal answers share a row.

    If this fails: a reader looks for the one row that differs among seventy that do not.
    """
    rows = [row for row in report.quality if row.backend == "memory"]
    twins = [row.model_copy(update={"backend": "twin"}) for row in rows]
    both = report.model_copy(update={"quality": (*rows, *twins)})
    table = quality_table(both, "zh-like")
    assert len(table.rows) == len([row for row in rows if row.data_set == "zh-like"])
    assert {row[0].text for row in table.cells} == {"memory and twin"}


def test_findings_name_the_fastest_and_what_disagrees(report: Report) -> None:
    """Speed and agreement have a sentence each among the findings, from the rows themselves."""
    said = views.fastest(report)["clustered, 20,000 chunks"]
    assert said.startswith("fastest in vector mode memory, p50 ")
    assert "in hybrid mode memory rrf" in said
    found = views.agreement(report)["zh-like"]
    assert found.startswith("weaviate in vector mode (") or "sqlite in vector mode (0.996)" in found
    assert "memory" not in found
    row = next(row for row in report.quality if row.backend == "memory")
    alone = report.model_copy(update={"quality": (row,)})
    assert views.agreement(alone) == {
        row.data_set: "all backends agree with exact search, in 1 comparison."
    }
