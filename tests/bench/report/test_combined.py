"""Several reports as one: nothing is lost, and nothing is mixed that is not of one kind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import InvalidRequest
from corral.bench.report import render_html, render_markdown, views
from corral.bench.report.combined import combined
from corral.bench.report.report import Report

HERE = Path("round")
SECTIONS = ("quality", "answers", "builds", "speed", "tune", "failures")


def part(report: Report, *kept: str, **changed: Any) -> Report:
    """Return the report with some of its sections only."""
    empty = dict.fromkeys((name for name in SECTIONS if name not in kept), ())
    return report.model_copy(update={**empty, **changed})


def test_one_report_has_the_rows_of_all(report: Report) -> None:
    """Each section is as it was, the commands stand one after the other, the time is the whole.

    If this fails: `make bench` measures something that its report does not show.
    """
    assert report.finished is not None
    later = report.finished + timedelta(minutes=7)
    quality = part(report, "quality", "answers", "tune", command="corral bench quality")
    speed = part(
        report, "speed", "builds", "failures", finished=later, command="corral bench speed",
        baseline="exact",
    )  # fmt: skip
    whole = combined([(HERE, quality), (HERE, speed)], HERE)
    assert all(getattr(whole, name) == getattr(report, name) for name in SECTIONS)
    assert whole.data_sets == report.data_sets
    assert whole.command == "corral bench quality && corral bench speed"
    assert (whole.started, whole.finished) == (report.started, later)
    assert whole.baseline == "memory:vector, exact"
    assert combined([(HERE, quality)], HERE) is quality
    unfinished = part(report, "speed", finished=None)
    assert combined([(HERE, quality), (HERE, unfinished)], HERE).finished is None


def test_data_of_one_name_that_differ_stay_apart(report: Report) -> None:
    """The later set gets a number, in its rows too; equal sets are one.

    If this fails: the size of one set of chunks stands beside the speed on another.
    """
    data = report.data_sets[0].model_copy(update={"name": "clustered", "sha256": {"texts": "a"}})
    other = data.model_copy(update={"sha256": {"texts": "b"}})
    speed = part(report, "speed", data_sets=(data,))
    builds = part(report, "builds", data_sets=(other,))
    whole = combined([(HERE, speed), (HERE, builds)], HERE)
    assert [found.name for found in whole.data_sets] == ["clustered", "clustered (2)"]
    assert {row.data_set for row in whole.speed} == {"clustered"}
    assert {row.data_set for row in whole.builds} == {"clustered (2)"}
    assert any("clustered (2) is not the same data" in note for note in whole.notes)
    same = combined([(HERE, speed), (HERE, part(report, "builds", data_sets=(data,)))], HERE)
    assert [found.name for found in same.data_sets] == ["clustered"]
    assert {row.data_set for row in same.builds} == {"clustered"}


def test_what_a_quality_run_knows_of_its_data_is_kept(report: Report) -> None:
    """A speed run on a judged set knows no judgements; whichever comes first, the texts stay."""
    poor = [
        data.model_copy(update={"judgements": 0, "query_texts": {}}) for data in report.data_sets
    ]
    speed = part(report, "speed", data_sets=tuple(poor))
    for order in ((speed, part(report, "quality")), (part(report, "quality"), speed)):
        assert combined([(HERE, one) for one in order], HERE).data_sets == report.data_sets


def test_excerpts_of_all_reports_are_kept(report: Report) -> None:
    """Two runs on one set show different documents; the one report has the texts of both."""
    data = report.data_sets[0]
    more = data.model_copy(update={"excerpts": {"d9": "Another."}})
    parts = [part(report, "quality"), part(report, "builds", data_sets=(more,))]
    found = combined([(HERE, one) for one in parts], HERE).data_sets[0]
    assert found.excerpts == {**data.excerpts, "d9": "Another."}


def test_runs_are_found_from_the_new_folder(report: Report) -> None:
    """A run's path leads from the new report's folder to the file in the old one's."""
    row = report.quality[0].model_copy(update={"run_file": "runs/a.run"})
    quality = part(report, quality=(row,))
    whole = combined([(HERE / "quality", quality), (HERE / "speed", part(report, "speed"))], HERE)
    assert whole.quality[0].run_file == "quality/runs/a.run"


def test_settings_of_threads_that_differ_are_said(report: Report) -> None:
    """The machine's line has what all had; a note says which command had what else."""
    plain = part(report, "quality", hardware=report.hardware.model_copy(update={"threads": {}}))
    whole = combined([(HERE, plain), (HERE, part(report, "speed", command="fast"))], HERE)
    assert whole.hardware.threads == {}
    assert "A=1 in: fast" in whole.notes


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 8}, "differ in seed: 7, 8"),
        ({"python": "3.12.0"}, "differ in python"),
        ({"corral_version": "0.2"}, "differ in corral_version"),
        ({"embedding_model": "other"}, "differ in embedding_model"),
        ({"hardware": {"cpu": "Other"}}, "different machines"),
    ],
)
def test_what_cannot_be_one_report_is_refused(
    report: Report, changed: dict[str, Any], said: str
) -> None:
    """Other machines, versions, seeds or models are named."""
    if "hardware" in changed:
        changed = {"hardware": report.hardware.model_copy(update=changed["hardware"])}
    with pytest.raises(InvalidRequest, match=said):
        combined([(HERE, part(report, "builds")), (HERE, part(report, "speed", **changed))], HERE)


def test_a_row_of_two_reports_is_refused(report: Report) -> None:
    """A figure that was measured twice has no place for both; how many there are is said."""
    twice = [(HERE, part(report, "builds"))] * 2
    said = (
        f"{len(report.builds)} rows are in two of the reports, the first 'clustered memory, 1,000"
    )
    with pytest.raises(InvalidRequest, match=said):
        combined(twice, HERE)


def test_a_run_that_names_no_model_goes_with_any(report: Report) -> None:
    """Seeded vectors have no model, so a speed run on them says none; the quality run's stands."""
    none = part(report, "speed", embedding_model=None, embedding_dimension=None)
    whole = combined([(HERE, none), (HERE, part(report, "quality"))], HERE)
    assert (whole.embedding_model, whole.embedding_dimension) == ("all-MiniLM-L6-v2", 384)


def test_the_page_shows_all_sections(report: Report) -> None:
    """Quality and speed have their sections in both renderings."""
    parts = [part(report, "quality"), part(report, "speed", "builds")]
    whole = combined([(HERE, one) for one in parts], HERE)
    page, text = render_html(whole), render_markdown(whole)
    assert all(f'id="{name}"' in page for name in ("quality", "latency", "build"))
    assert all(f"\n## {name}\n" in text for name in ("Quality", "Speed"))
    assert views.backends(whole) == views.backends(part(report, "quality"))
