"""Answers are recorded in full, and any difference is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.answers import VARIANTS, main


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the answers of SQLite to two questions a set."""
    out = tmp_path_factory.mktemp("answers")
    assert main([str(out), "--providers", "sqlite", "--most", "2"]) == 0
    return out


def test_each_mode_and_option_has_a_run_with_whole_scores(recorded: Path) -> None:
    """A run per set, mode and variant; its scores keep every digit, and no question was refused.

    If this fails: two trees can look equal though their answers differ.
    """
    runs = {path.name: path.read_text("utf-8") for path in recorded.glob("sqlite/miniature-en/*")}
    variants = {f"{mode}.{name}.run" for name, (modes, _) in VARIANTS.items() for mode in modes}
    assert {"vector.run", "keyword.run", "hybrid.run", "hybrid.changed.run", *variants} <= set(runs)
    assert "#" not in "".join(runs.values())
    scores = [line.split()[4] for line in runs["hybrid.run"].splitlines()]
    assert any(len(score) > 14 for score in scores)
    assert [repr(float(score)) for score in scores] == scores


def test_equal_answers_compare_equal(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same tree asked twice answers the same, byte for byte; `--against` says so and exits 0.

    If this fails: an answer depends on chance, or on when it is asked.
    """
    again = recorded.with_name("again")
    command = [str(again), "--providers", "sqlite", "--most", "2", "--against", str(recorded)]
    assert main(command) == 0
    assert "runs are byte-equal" in capsys.readouterr().out


def test_a_difference_is_shown(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One changed digit exits 1 and shows file, line, before and now; so does a missing file.

    If this fails: a change of answers goes unnoticed.
    """
    for path in recorded.rglob("*.run"):
        copy = tmp_path / path.relative_to(recorded)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text("utf-8"), "utf-8")
    changed = tmp_path / "sqlite" / "miniature-en" / "vector.run"
    first, rest = changed.read_text("utf-8").split("\n", 1)
    changed.write_text(f"{first}.\n{rest}", "utf-8")
    (tmp_path / "sqlite" / "miniature-de" / "vector.run").unlink()
    assert main([str(tmp_path), "--compare-only", "--against", str(recorded)]) == 1
    shown = capsys.readouterr().out
    assert f"  1\n  - {first}\n  + {first}." in shown
    assert "vector.run: missing" in shown
