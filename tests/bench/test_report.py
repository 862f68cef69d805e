"""A report is read as it was written, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from corral.api.errors import InvalidRequest
from corral.bench.report.report import REPORT_NAME, Report, begin_report, read_report, write_report
from corral.bench.report.rows import (
    BuildRow,
    Comparison,
    Estimate,
    Failure,
    QualityRow,
    Row,
    SpeedRow,
)

FIGURE = Estimate(mean=0.5, low=0.4, high=0.6)
QUALITY = QualityRow(
    backend="sqlite",
    mode="hybrid",
    fusion="rrf",
    ranker={"type": "rrf"},
    data_set="farm",
    n_queries=2,
    k=100,
    metrics={"nDCG@10": FIGURE},
    ndcg_by_query={"q1": 0.4, "q2": 0.6},
    comparison=Comparison(
        baseline="sqlite:vector",
        difference=FIGURE,
        p=0.5,
        p_holm=1.0,
        verdict="not resolvable",
        statement="not resolvable at 2 queries",
    ),
)


def report() -> Report:
    """Return a report with some rows."""
    speed = SpeedRow(
        backend="sqlite", data_set="farm", mode="vector", size=10, n_queries=5, p50_ms=1,
        p95_ms=2, p99_ms=3, throughput_qps=900, samples_ms=(1.0, 2.0),
    )  # fmt: skip
    build = BuildRow(backend="sqlite", data_set="farm", size=10, dimension=8, insert_rate=100)
    failure = Failure(backend="faiss", stage="start", message="no faiss")
    return begin_report("corral bench quality", 3).with_rows(QUALITY, speed, build, failure)


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    """Written to a folder or a file and read from either, it is equal; nothing else is left."""
    done = report().done()
    write_report(done, tmp_path / REPORT_NAME)
    assert read_report(tmp_path) == read_report(tmp_path / REPORT_NAME) == done
    write_report(report(), tmp_path / "sub" / "other.json")
    assert read_report(tmp_path / "sub" / "other.json").finished is None
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["other.json", REPORT_NAME, "sub"]


def test_a_report_says_where_it_was_made() -> None:
    """Command, seed, versions, machine: what a reader needs to judge the figures."""
    made = report()
    assert (made.command, made.seed) == ("corral bench quality", 3)
    assert made.packages["numpy"]
    assert made.hardware.cores >= 1
    assert made.hardware.cpu
    assert made.started.tzinfo is not None
    assert QUALITY.label == "sqlite:hybrid:rrf"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schema_version": 1}, "schema version 1, this Corral reads 2"),
        ({"schema_version": None}, "schema version None"),
        ({"seed": "x"}, "seed: "),
        ({"quality": [{"backend": "sqlite"}]}, r"quality\.0\.mode: "),
        ({"surprise": 1}, "surprise: "),
    ],
)
def test_another_report_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    """An unknown schema version or field is named, and nothing is guessed."""
    data = json.loads(report().model_dump_json())
    path = tmp_path / REPORT_NAME
    path.write_text(json.dumps({**data, **changed}), encoding="utf-8")
    with pytest.raises(InvalidRequest, match=message):
        read_report(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"a"'])
def test_no_report_is_refused(tmp_path: Path, text: str) -> None:
    """What is not JSON object is no report."""
    (tmp_path / REPORT_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"is not JSON|schema version None"):
        read_report(tmp_path)


def test_rows_are_frozen_and_belong_somewhere() -> None:
    """A row cannot be changed, holds no NaN, and one without a section is refused."""
    with pytest.raises(ValidationError):
        QUALITY.mode = "vector"  # type: ignore[misc]  # mypy refuses it as pydantic must
    with pytest.raises(ValidationError):
        Estimate(mean=float("nan"), low=0, high=0)
    with pytest.raises(TypeError, match="no section for Estimate"):
        report().with_rows(FIGURE)
    assert isinstance(QUALITY, Row)
