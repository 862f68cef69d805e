"""What `corral bench` prints in a terminal needs nothing beyond the core package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN_YAML = """
providers:
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
"""
WITHOUT = """
import sys
for name in ("faiss", "ir_measures", "jinja2", "psutil", "scipy"):
    sys.modules[name] = None
from corral.server.cli.cli import main
main()
"""
"""The command line where the packages of the extra `bench` cannot be imported."""


def corral(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the packages of the extra `bench`."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, "--home", str(folder / "home"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_the_benchmarks_tables_need_no_extra(tmp_path: Path) -> None:
    """`tune` and `quality` print their tables on a plain install.

    Both write the report as JSON and Markdown, and a line says what its page needs; `report` and
    `speed`, which cannot work, say it, too.

    If this fails: look at the imports below `bench/commands.py`. `pip install corral-rag` ends
    `corral bench tune` with a traceback or a hint.
    """
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    for number in range(30):
        name = tmp_path / "texts" / f"{number}.txt"
        name.parent.mkdir(exist_ok=True)
        words = (f"word{(number * 7 + place) % 40}" for place in range(20))
        name.write_text(" ".join(words), encoding="utf-8")
    assert corral(tmp_path, "ingest", "farm", "texts", "--create").returncode == 0
    tuned = corral(tmp_path, "bench", "tune", "--db", "farm", "--generate", "20", "--out", "tuned")
    assert tuned.returncode == 0, tuned.stderr
    assert "Held-out half" in tuned.stdout
    assert "Recommended registration" in tuned.stdout
    said = " ".join(tuned.stdout.split())
    assert "For report.html: pip install 'corral-rag[bench]', then corral bench report" in said
    assert json.loads((tmp_path / "tuned" / "report.json").read_text("utf-8"))["tune"]
    assert "| Setting" in (tmp_path / "tuned" / "report.md").read_text("utf-8")
    assert not (tmp_path / "tuned" / "report.html").exists()

    options = ["--data", "miniature", "--embedder", "hashing", "--max-docs", "50"]
    quality = corral(
        tmp_path, "bench", "quality", *options, "--modes", "keyword", "--out", "judged"
    )
    assert quality.returncode == 0, quality.stderr
    assert "nDCG@10" in quality.stdout

    for command, package in (("report tuned", "jinja2"), ("speed --sizes 100", "psutil")):
        refused = corral(tmp_path, "bench", *command.split())
        assert refused.returncode == 1
        assert f"needs {package}" in refused.stderr
        assert "pip install 'corral-rag[bench]'" in refused.stderr
