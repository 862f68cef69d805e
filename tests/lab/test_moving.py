"""The benchmark of moving runs, and shows the source and each copy."""

from __future__ import annotations

import re

from click.testing import CliRunner

from lab.moving import main


def test_each_backend_has_its_line() -> None:
    """Two rates for each copy, there and back, and a time for each mode of source and copies."""
    done = CliRunner().invoke(main, ["--count", "60", "--to", "inline::memory"])
    assert done.exit_code == 0, done.output
    rows = [re.findall(r"[\w:.,]+", line) for line in done.stdout.splitlines() if "inline" in line]
    assert [row[0] for row in rows] == ["inline::sqlite", "inline::memory"]
    assert [len(row) for row in rows] == [4, 6]
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[1:])
