"""`corral bench quality` at the command line: what it prints, refuses and leaves behind."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corral.bench.report import terminal
from corral.bench.report.blocks import Cell, Column, Table, figures
from corral.bench.report.report import read_report
from corral.bench.run import Run
from corral.server.cli.cli import main

from .foreign import install
from .judged_files import QRELS, write_beir

QUALITY = ("bench", "quality", "--embedder", "hashing")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder and a current folder of the test's own."""
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def corral(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_table_for_each_set(tmp_path: Path) -> None:
    """Folders may follow --data; each set has its table, and the report names the command."""
    one, two = write_beir(tmp_path / "one"), write_beir(tmp_path / "two-de")
    done = corral(
        *QUALITY, "--data", one, two, "--backends", "memory,sqlite", "--modes", "vector, keyword",
        "--language", "one=french", "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for shown in (
        "one, french, 2 queries",
        "two-de, german, 2 queries",
        "memory and sqlite   keyword",
        "one: all backends agree with exact search, in 4 comparisons.",
        "Reports in out: report.html",
    ):
        assert shown in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "two-de" in (tmp_path / "out" / "report.html").read_text("utf-8")
    report = read_report(tmp_path / "out")
    assert report.command == shlex.join(["corral", *sys.argv[1:]])
    assert [data.language for data in report.data_sets] == ["french", "german"]
    assert report.baseline == "memory:vector"


def test_a_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Without --out each run makes a new folder; with --resume a folder is used again."""
    folder = write_beir(tmp_path / "farm")
    done = corral(*QUALITY, folder, "--modes", "keyword")
    assert done.exit_code == 0, done.output
    (made,) = (tmp_path / "corral-bench").iterdir()
    again = corral(*QUALITY, folder, "--modes", "keyword", "--out", made)
    assert again.exit_code == 2
    assert "holds a report already" in again.stderr
    resumed = corral(*QUALITY, folder, "--modes", "keyword", "--out", made, "--resume")
    assert resumed.exit_code == 0, resumed.output


def test_a_failure_is_shown_and_the_exit_code_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a backend failed, the others have their rows, and the exit code is 1."""
    install(monkeypatch)
    done = corral(*QUALITY, write_beir(tmp_path / "farm"), "--backends", "unreachable,memory")
    assert done.exit_code == 1
    assert "nobody listens there" in done.stdout
    assert "memory" in done.stdout
    assert "Not everything could be measured: 1 failure" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (*QUALITY, "miniature"),
        ("bench", "speed", "--sizes", "50", "--baseline", "unreachable"),
    ],
)
def test_out_is_a_folder_whatever_could_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Where every backend failed, the folder --out holds what says so; without time, too.

    If this fails: --out is a file, and neither the reports nor another run can go there.
    """
    install(monkeypatch)
    out = tmp_path / "out"
    done = corral(*words, "--backends", "unreachable", "--out", out)
    assert (done.exit_code, "Not everything could be" in done.stderr) == (1, True), done.output
    assert {"report.html", "report.json", "report.md"} <= {path.name for path in out.iterdir()}
    monkeypatch.setattr(Run, "out_of_time", True)
    short = corral(*words, "--backends", "memory", "--max-seconds", "1", "--out", tmp_path / "no")
    assert (short.exit_code, "too small for one measurement" in short.stderr) == (2, True)
    assert not (tmp_path / "no").is_file()


def test_a_configured_backend(tmp_path: Path) -> None:
    """--config names backends with their settings, here and before the command."""
    folder = write_beir(tmp_path / "farm")
    config = tmp_path / "bench.yaml"
    config.write_text(
        "providers:\n  vector_io:\n    - {provider_id: mine, provider_type: 'inline::memory',"
        " config: {keyword: fuzzy}}\n",
        encoding="utf-8",
    )
    options = [folder, "--backends", "mine", "--modes", "keyword"]
    inside, before = [*QUALITY, *options, "--config", config], ["--config", config, *QUALITY]
    for name, words in (("inside", inside), ("before", [*before, *options])):
        done = corral(*words, "--out", name)
        assert done.exit_code == 0, done.output
        assert "mine" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name a data set with --data"),
        (["none"], "There is no folder none"),
        (["miniature", "--backends", "sqlit"], "Did you mean 'sqlite'?"),
        (["miniature", "--modes", "vectr"], "Did you mean 'vector'?"),
        (["miniature", "--fusion", "rff"], "Did you mean 'rrf'?"),
        (["miniature", "--max-docs", "5"], "--max-docs 5 is too small"),
        (["miniature", "--max-seconds", "0.0001"], "--max-seconds 0.0001 is too small"),
        (["miniature", "--language", "de", "--language", "fr"], "given twice for all"),
        (["miniature", "--language", "de="], "does not name a language in 'de='"),
        (["miniature", "--embedder", "none"], "No provider serves"),
        (["miniature", "--resume"], "--resume needs --out"),
        (["miniature", "--seed", "-1"], "-1 is not in the range"),
        (["miniature", "--max-seconds", "0"], "0 is not in the range"),
        (["miniature", "--out", "broken/corpus.jsonl"], "'broken/corpus.jsonl' is a file."),
        (["broken"], "1 of 4 judgements name an unknown document id, the first 'd9'"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    """A message that says what is wrong, exit code 2, and no result folder."""
    write_beir(tmp_path / "broken", qrels=[*QRELS, "q1\td9\t1"])
    corpus = (tmp_path / "broken" / "corpus.jsonl").read_bytes()
    done = corral(*QUALITY, *words)
    assert (tmp_path / "broken" / "corpus.jsonl").read_bytes() == corpus  # it was once the report
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "corral-bench").exists()


def test_a_complete_round_is_one_report(tmp_path: Path) -> None:
    """Quality and speed, each with a report, become one that has both; once.

    If this fails: `make bench`, which does the same, ends without its report.
    """
    makefile = (Path(__file__).parents[2] / "Makefile").read_text("utf-8")
    parts = [tmp_path / "out" / name for name in ("quality", "speed")]
    assert all(f"$$bench {part.name} $$on " in makefile for part in parts)
    folder, small = write_beir(tmp_path / "farm"), ("--modes", "vector", "--filters", "")
    for words in (
        (*QUALITY, folder, "--modes", "vector", "--backends", "memory", "--out", parts[0]),
        (
            "bench", "speed", "--sizes", "100", "--backends", "memory", *small, "--queries", "5",
            "--rounds", "1", "--concurrency", "1", "--out", parts[1],
        ),
    ):  # fmt: skip
        done = corral(*words)
        assert done.exit_code == 0, done.output
    done = corral("bench", "report", *parts, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for name in ("report.json", "report.md", "report.html"):
        assert f"out/{name}" in done.stdout
        assert (tmp_path / "out" / name).exists()
    whole = read_report(tmp_path / "out")
    assert all((whole.quality, whole.builds, whole.speed))
    assert (tmp_path / "out" / str(whole.quality[0].run_file)).exists()
    again = corral("bench", "report", *parts, "--out", tmp_path / "out")
    assert (again.exit_code, "holds a report already" in again.stderr) == (2, True)
    nowhere = corral("bench", "report", *parts)
    assert (nowhere.exit_code, "--out" in nowhere.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["tune", "--data", "miniature", "--backend", "all-inline"],
            "--backend takes one provider",
        ),
        (["tune", "--data", "miniature", "--out", "done"], "done holds a report already"),
        (["tune", "--db", "farm", "--generate", "0"], "0 is not in the range"),
        (["speed", "--sizes", "1k", "--resume"], "--resume needs --out"),
        (["speed", "--max-docs", "9"], "--max-docs 9 is too small for one measurement"),
        (["speed", "--data", "miniature", "--max-docs", "9"], "--max-docs 9 is too small"),
        (["speed", "--embedder", "hashing"], "--embedder needs --data"),
        (["tune", "--db", "x", "--generate", "20", "--embedder", "m"], "--embedder needs --data"),
        (["tune", "--db", "x", "--generate", "20", "--language", "de"], "--language needs --data"),
        (["tune", "--db", "x", "--generate", "20", "--backend", "faiss"], "--backend needs --data"),
        (["speed", "--sizes", "1k", "--modes", "vectr"], "Did you mean 'vector'?"),
    ],
)
def test_bad_input_of_other_commands(tmp_path: Path, words: list[str], said: str) -> None:
    """The same for them; a report that is there stays as it is.

    If this fails: a person sees a traceback, or loses a report.
    """
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "report.json").write_text("{}")
    done = corral("bench", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert (tmp_path / "done" / "report.json").read_text() == "{}"
    assert not (tmp_path / "corral-bench").exists()


def test_a_tuning_has_a_whole_report(tmp_path: Path) -> None:
    """Its data with their hashes, and the embedding model, as any other report has."""
    words = ("bench", "tune", "--data", "miniature", "--embedder", "hashing", "--out", "out")
    done = corral(*words)
    assert done.exit_code == 0, done.output
    report = read_report(tmp_path / "out")
    [section] = report.tune
    [data] = report.data_sets
    assert (data.name, report.embedding_model) == (section.data_set, "hashing")
    assert data.kind == "miniature"
    assert (report.embedding_dimension or 0) > 0
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert data.sha256
    assert all(digest in page for digest in data.sha256.values())


def test_no_figure_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of columns take several lines before a figure loses a digit.

    If this fails: `< 0.001` reads `< 0.`, which is another figure.
    """
    columns = [Column("Backend", wraps=True), *figures(*["A long name of a figure"] * 6)]
    columns.append(Column("Verdict", wraps=True))
    row: list[Cell | str] = ["chroma-direct", *["< 0.001"] * 6, "approximate"]
    terminal.show([Table("Many figures", columns, [row, row])])
    shown = capsys.readouterr().out
    assert shown.count("< 0.001") == 12


def test_a_pipe_gets_whole_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A table that is wider than 100 columns has all of them where the output is no terminal.

    If this fails: a log of `corral bench speed` with many peers ends in the middle of a figure.
    """
    columns = [
        Column("System", wraps=True),
        Column("Filter"),
        *figures(*[f"x{n}" for n in range(12)]),
    ]
    row: list[Cell | str] = [
        "llama-stack weighted",
        "50 %",
        *[f"{n}11,111.11 ×" for n in range(12)],
    ]
    terminal.show([Table("asking", columns, [row])])
    shown = capsys.readouterr().out
    names = next(line for line in shown.splitlines() if "System" in line)
    assert names.split() == [column.name for column in columns]
    assert all(f"{n}11,111.11 ×" in shown for n in range(12))


def test_it_works_on_this_machine_only() -> None:
    """--url is refused."""
    done = corral("--url", "http://127.0.0.1:1", *QUALITY, "miniature")
    assert done.exit_code == 2
    assert "bench quality works only on this machine" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    """`corral bench --help` loads no numpy, no engine and no tables."""
    code = (
        "import sys; from click.testing import CliRunner;"
        "from corral.server.cli.cli import main;"
        "CliRunner().invoke(main, ['bench', 'quality', '--help']);"
        "print(*{'numpy', 'pydantic', 'rich', 'ir_measures', 'apsw'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
