"""`corral bench compare` and `corral bench report`: what counts as worse, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from corral.api.errors import InvalidRequest
from corral.bench.quality.metrics import AGREES
from corral.bench.quality.statistics import bootstrap
from corral.bench.report import render_html, render_markdown
from corral.bench.report.compare import TOLERANCE, compare_reports
from corral.bench.report.comparison import ReportComparison
from corral.bench.report.report import REPORT_NAME, Report, read_report, write_report
from corral.bench.report.rows import BuildRow, Estimate, Failure, Hardware, QualityRow, SpeedRow
from corral.server.cli.cli import main

from .report.example_report import example_report

QUERIES = 60


def quality_row(backend: str, values: Mapping[str, float], **given: Any) -> QualityRow:
    """Return a row whose nDCG@10 has these values."""
    settings = {"mode": "vector", "data_set": "made-up", "k": 10, **given}
    metrics = {"nDCG@10": bootstrap(list(values.values()))}
    return QualityRow(
        backend=backend,
        n_queries=len(values),
        metrics=metrics,
        ndcg_by_query=dict(values),
        **settings,
    )


def values(seed: int = 0, shift: float = 0.0, n: int = QUERIES) -> dict[str, float]:
    """Return nDCG@10 by query, seeded."""
    drawn = np.random.default_rng(seed).uniform(0.2, 0.8, n) + shift
    return {f"q{i}": float(value) for i, value in enumerate(drawn)}


def speed_row(**given: Any) -> SpeedRow:
    """Return a speed row; 10 ms at the median unless given."""
    figures = {"p50_ms": 10.0, "p95_ms": 20.0, "p99_ms": 30.0, "throughput_qps": 100.0, **given}
    return SpeedRow(
        backend="sqlite", data_set="made-up", mode="vector", size=1000, n_queries=50, **figures
    )


def made(*rows: Any, **changed: Any) -> Report:
    """Return a report of these rows."""
    empty = dict.fromkeys(("quality", "speed", "builds", "tune", "failures"), ())
    return example_report().model_copy(update={**empty, **changed}).with_rows(*rows)


def compared(before: Report, after: Report, **options: Any) -> ReportComparison:
    """Return the comparison."""
    return compare_reports(before, after, **options)


def corral(*arguments: object) -> Result:
    """Run the command line."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_report_has_no_regression_against_itself() -> None:
    """Every row is paired and unchanged, none is missing."""
    report = example_report()
    found = compared(report, report)
    assert [*found.regressions, *found.missing, *found.notes] == []
    assert len(found.quality) == len(report.quality)
    assert all(change.comparison.verdict == "same" for change in found.quality)
    assert {change.verdict for change in found.speed} == {"same"}
    assert all(change.ratio == 1 for change in found.speed)


def test_a_loss_over_the_queries_is_a_regression() -> None:
    """Where most queries lose, the row is worse, with its difference; its neighbor is not."""
    before = made(quality_row("sqlite", values()), quality_row("faiss", values()))
    after = made(quality_row("sqlite", values(shift=-0.1)), quality_row("faiss", values()))
    found = compared(before, after)
    worse, same = found.quality
    assert (worse.comparison.verdict, same.comparison.verdict) == ("worse", "same")
    assert worse.metrics["nDCG@10"][2] == pytest.approx(-0.1)
    assert worse.comparison.difference.mean == pytest.approx(-0.1)
    (said,) = found.regressions
    assert "made-up sqlite:vector: worse than the first report by -0.100" in said


def test_a_gain_is_no_regression() -> None:
    """Better is better, and fails nobody."""
    before, after = (
        made(quality_row("sqlite", values())),
        made(quality_row("sqlite", values(shift=0.1))),
    )
    found = compared(before, after)
    assert found.quality[0].comparison.verdict == "better"
    assert found.regressions == ()


def test_what_the_queries_cannot_tell_is_no_regression() -> None:
    """A lower mean on a handful of queries is said to be not resolvable."""
    before = made(quality_row("sqlite", values(n=4)))
    after = made(quality_row("sqlite", values(n=4, shift=-0.2)))
    found = compared(before, after)
    assert found.quality[0].comparison.verdict == "not resolvable"
    assert found.regressions == ()


def test_the_correction_counts_all_rows() -> None:
    """A p that would do for one row does not among many.

    Six queries that all lose have p = 2 / 2^6 = 0.031; of two such rows each has 0.0625.
    If this fails: a run of many rows raises false alarms.
    """
    one = [quality_row("sqlite", values(n=6)), quality_row("sqlite", values(n=6, shift=-0.1))]
    two = [quality_row("faiss", values(n=6)), quality_row("faiss", values(n=6, shift=-0.15))]
    alone = compared(made(one[0]), made(one[1]))
    assert alone.quality[0].comparison.p_holm == pytest.approx(2 / 64)
    assert len(alone.regressions) == 1
    both = compared(made(one[0], two[0]), made(one[1], two[1]))
    assert [c.comparison.p_holm for c in both.quality] == pytest.approx([4 / 64] * 2)
    assert both.regressions == ()


@pytest.mark.parametrize(
    ("figure", "after", "verdict"),
    [
        ("p50_ms", 12.4, "same"),
        ("p50_ms", 12.6, "slower"),
        ("p50_ms", 8.1, "same"),
        ("p50_ms", 7.9, "faster"),
        ("throughput_qps", 81.0, "same"),
        ("throughput_qps", 79.0, "slower"),
        ("throughput_qps", 126.0, "faster"),
    ],
)
def test_speed_is_held_against_the_tolerance(figure: str, after: float, verdict: str) -> None:
    """A quarter slower is allowed, in both directions alike; a throughput is better when higher."""
    found = compared(made(speed_row()), made(speed_row(**{figure: after})))
    changes = {change.figure: change for change in found.speed}
    assert changes[figure].verdict == verdict
    assert len(found.regressions) == (verdict == "slower")


def test_the_tolerance_can_be_set() -> None:
    """With 0.5 a third slower is the same; below 0 it is refused."""
    before, after = made(speed_row()), made(speed_row(p50_ms=14.0))
    assert compared(before, after).regressions
    assert not compared(before, after, tolerance=0.5).regressions
    with pytest.raises(InvalidRequest, match="must be >= 0"):
        compared(before, after, tolerance=-0.1)


def test_builds_are_compared_by_their_whole_time_and_their_disk() -> None:
    """Inserts and indexing together: 1000 chunks at 500/s and 1 s are 3 s."""
    build = BuildRow(
        backend="sqlite",
        data_set="made-up",
        size=1000,
        dimension=8,
        insert_rate=500,
        build_seconds=1,
        disk_mib=10,
    )
    after = build.model_copy(update={"build_seconds": 4.0, "disk_mib": 30.0})
    found = compared(made(build), made(after))
    seconds, disk = found.speed
    assert (seconds.before, seconds.after, seconds.verdict) == (3.0, 6.0, "slower")
    assert disk.ratio == pytest.approx(3)
    assert len(found.regressions) == 2


def test_speed_on_another_machine_is_not_judged() -> None:
    """The ratios are shown and a note says why they count for nothing."""
    other = Hardware(cpu="Another CPU", cores=64, memory_mib=None, system="Linux 6")
    found = compared(made(speed_row()), made(speed_row(p50_ms=99.0), hardware=other))
    assert {change.verdict for change in found.speed} == {"not judged"}
    assert found.regressions == ()
    assert any("Another CPU" in note for note in found.notes)


def test_a_row_that_vanished_is_a_regression_with_its_reason() -> None:
    """What the second lacks is named, with its failure; --allow-missing lets it pass."""
    kept, lost = quality_row("sqlite", values()), quality_row("faiss", values())
    failure = Failure(backend="faiss", stage="start", message="Out of memory.")
    before, after = made(kept, lost), made(kept, failure)
    (said,) = compared(before, after).regressions
    assert said == "made-up faiss:vector (quality) is missing: Out of memory."
    assert compared(before, after, allow_missing=True).regressions == ()
    new = compared(after, before)
    assert [row.missing_in for row in new.missing] == ["first"]
    assert new.regressions == ()


def test_fusions_filters_and_loads_are_told_apart() -> None:
    """Rows are paired by all that sets them apart, so that none is held against another."""
    fusions = [quality_row("sqlite", values(), mode="hybrid", fusion=f) for f in ("rrf", "max")]
    loads = [speed_row(), speed_row(concurrency=4), speed_row(selectivity=0.01), speed_row(k=20)]
    loads.append(speed_row(variant="http"))
    report = made(*fusions, *loads)
    found = compared(report, report)
    assert len(found.quality) == 2
    assert len(found.speed) == 2 * len(loads)


def test_a_backend_that_became_approximate_is_a_regression() -> None:
    """From agreeing with exact search to missing hits is one; the way back is none."""
    fine = quality_row("sqlite", values())
    shares = {share: Estimate(mean=share, low=share, high=share) for share in (1.0, 0.95)}
    exact, lossy = (
        fine.model_copy(update={"metrics": {**fine.metrics, AGREES: share}})
        for share in shares.values()
    )
    (said,) = compared(made(exact), made(lossy)).regressions
    assert said.endswith("agrees with exact: 1.000 before, 0.950 now")
    assert compared(made(lossy), made(exact)).regressions == ()


def test_other_data_are_refused() -> None:
    """Files of another hash, or another number of documents, and which."""
    report = example_report()
    first, *rest = report.data_sets
    changed = first.model_copy(update={"sha256": {**first.sha256, "corpus.jsonl": "f" * 64}})
    with pytest.raises(InvalidRequest, match=r"'scifact-like'.*corpus\.jsonl differ"):
        compared(report, report.model_copy(update={"data_sets": (changed, *rest)}))
    fewer = first.model_copy(update={"documents": 17})
    with pytest.raises(InvalidRequest, match="documents differ"):
        compared(report, report.model_copy(update={"data_sets": (fewer, *rest)}))


def test_reports_with_nothing_in_common_are_refused() -> None:
    """No pair of rows is no comparison: it must not pass for one without regressions."""
    one, other = made(quality_row("sqlite", values())), made(quality_row("faiss", values()))
    with pytest.raises(InvalidRequest, match="no row in common"):
        compared(one, other, allow_missing=True)


def test_changed_conditions_are_noted() -> None:
    """Another model, version or seed is said, since it may be the cause."""
    before = example_report()
    packages = {**before.packages, "numpy": "9.9"}
    after = before.model_copy(update={"seed": 8, "embedding_model": "other", "packages": packages})
    notes = " ".join(compared(before, after).notes)
    for said in ("seed was 7, is 8", "is other", "numpy was 2.4.6, is 9.9"):
        assert said in notes


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a report and of one with a regression."""
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    write_report(made(quality_row("sqlite", values()), speed_row()), before)
    write_report(made(quality_row("sqlite", values(shift=-0.1)), speed_row()), after)
    return before, after


def test_exit_code_0_without_a_regression(files: tuple[Path, Path]) -> None:
    """The same report twice: nothing changed, and it says so."""
    done = corral("bench", "compare", files[0], files[0])
    assert done.exit_code == 0
    assert "No regression." in done.output


def test_exit_code_1_with_a_regression(files: tuple[Path, Path]) -> None:
    """The table has the row, and a line says what is worse."""
    done = corral("bench", "compare", *files)
    assert done.exit_code == 1
    assert "-0.100" in done.output
    assert "Regression: made-up sqlite:vector: worse" in " ".join(done.output.split())


def test_json_is_the_whole_comparison(files: tuple[Path, Path]) -> None:
    """What --json prints is what `compare_reports` returns, and the exit code is the same."""
    done = corral("bench", "compare", *files, "--json")
    assert done.exit_code == 1
    found = ReportComparison.model_validate_json(done.stdout)
    assert found == compare_reports(read_report(files[0]), read_report(files[1]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not JSON"),
        ("[]", "schema version None"),
        (json.dumps({"schema_version": 99}), "schema version 99"),
        (json.dumps({"schema_version": 2}), "command: missing"),
    ],
)
def test_exit_code_2_for_what_is_no_report(
    files: tuple[Path, Path], tmp_path: Path, content: str | None, said: str
) -> None:
    """A file that is missing, broken or of another schema is bad input, not a regression."""
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content, "utf-8")
    for pair in ((files[0], bad), (bad, files[0])):
        done = corral("bench", "compare", *pair)
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
    assert corral("bench", "report", bad).exit_code == 2


def test_exit_code_2_for_other_data(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Reports of other data are bad input too."""
    report = read_report(files[0])
    first, *rest = report.data_sets
    changed = first.model_copy(update={"sha256": {"corpus.jsonl": "f" * 64}})
    other = tmp_path / "other.json"
    write_report(report.model_copy(update={"data_sets": (changed, *rest)}), other)
    done = corral("bench", "compare", files[0], other)
    assert done.exit_code == 2
    assert "not the same in both reports" in done.output


def test_the_default_tolerance_is_the_one_that_is_documented() -> None:
    """The command line's default is the library's."""
    done = corral("bench", "compare", "--help")
    assert f"default: {TOLERANCE}" in " ".join(done.output.split())


def test_names_cannot_act_upon_the_terminal(tmp_path: Path) -> None:
    """A control character in a backend's name or a message is printed as a space."""
    evil = "x\x1b[2J"
    row = quality_row("sqlite", values())
    write_report(made(row, quality_row(evil, values())), tmp_path / "a.json")
    failure = Failure(backend=evil, stage="start", message=evil)
    write_report(made(row, failure), tmp_path / "b.json")
    done = corral("bench", "compare", tmp_path / "a.json", tmp_path / "b.json")
    assert done.exit_code == 1
    assert "\x1b" not in done.output


def test_report_renders_again(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Both beside the report, or only the one that is named, as the library renders them."""
    report = read_report(files[0])
    assert corral("bench", "report", files[0]).exit_code == 0
    assert (tmp_path / "report.html").read_text("utf-8") == render_html(report)
    assert (tmp_path / "report.md").read_text("utf-8") == render_markdown(report)
    (tmp_path / "report.md").unlink()
    assert corral("bench", "report", files[0], "--html", tmp_path / "x.html").exit_code == 0
    assert (tmp_path / "x.html").read_text("utf-8") == render_html(report)
    assert not (tmp_path / "report.md").exists()


@pytest.mark.parametrize(
    ("html", "wrong"), [("missing/x.html", "there is no folder"), ("folder", "it is a folder")]
)
@pytest.mark.parametrize("out", [[], ["--out", "whole"]])
def test_no_file_is_written_where_another_cannot_be(
    files: tuple[Path, Path], tmp_path: Path, html: str, wrong: str, out: list[str]
) -> None:
    """All targets are looked at before the first is written; a folder that --out makes is one.

    If this fails: a command that failed leaves files behind, which look like its result.
    """
    (tmp_path / "folder").mkdir()
    words = [*out[:1], *(tmp_path / name for name in out[1:])]
    report = ("bench", "report", files[0], *words, "--md", tmp_path / "x.md", "--html")
    done = corral(*report, tmp_path / html)
    assert done.exit_code == 2
    assert wrong in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "folder"]
    done = corral(*report, tmp_path / (out[1] if out else ".") / "x.html")
    assert done.exit_code == 0, done.output


def test_a_folder_stands_for_its_report(tmp_path: Path) -> None:
    """A run's folder is as good as the file in it, for both commands."""
    write_report(made(quality_row("sqlite", values())), tmp_path / REPORT_NAME)
    assert corral("bench", "compare", tmp_path, tmp_path).exit_code == 0
    assert corral("bench", "report", tmp_path).exit_code == 0
    assert (tmp_path / "report.html").exists()
