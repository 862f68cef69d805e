"""`corral ingest --records`: a row of a table is a document with typed metadata."""

from __future__ import annotations

import csv
import datetime
import json
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .conftest import Corral

ROWS: list[dict[str, Any]] = [
    {"no": "a1", "day": "2026-01-05", "by": "eva", "eur": 3.5, "sold": True, "note": "Hay is in."},
    {"no": "a2", "day": "2026-02-09", "by": "tom", "eur": 20, "sold": False, "note": "Oats came."},
    {"no": "a3", "day": "2026-03-01", "by": "eva", "eur": 8, "sold": True, "note": "Rye is out."},
]
CHOICE = ["--records", "--text", "note", "--id", "no"]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that a file's name says."""
    if path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in [list(rows[0]), *(list(row.values()) for row in rows)]:
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), dialect=csv.excel)
            if path.suffix == ".tsv":
                writer = csv.DictWriter(file, list(rows[0]), dialect=csv.excel_tab)
            writer.writeheader()
            writer.writerows(rows)
    return path


def stored_metadata(corral: Corral, name: str) -> dict[str, Any]:
    """Return the metadata of a document."""
    shown = corral("documents", "show", "farm", name, "--json")
    assert shown.exit_code == 0, shown.output
    metadata: dict[str, Any] = json.loads(shown.stdout)["metadata"]
    return metadata


def ids(corral: Corral, **condition: Any) -> list[str]:
    """Return the ids of the documents that pass a filter."""
    filters = json.dumps(condition)
    shown = corral("query", "farm", "-o", f"filters={filters}", "--json")
    assert shown.exit_code == 0, shown.output
    return sorted(json.loads(shown.stdout)["metadata"]["document_ids"])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "xlsx", "parquet"])
def test_a_row_is_a_document(corral: Corral, tmp_path: Path, suffix: str) -> None:
    """Its metadata are all other columns: numbers, booleans, dates as text and as seconds.

    The same table again changes nothing.

    If this fails: filters on prices and dates find nothing, or the wrong rows.
    """
    table = written(tmp_path / f"sales.{suffix}", ROWS)
    done = corral("ingest", "farm", table, *CHOICE, "--create")
    assert done.exit_code == 0, done.output
    assert "ingested 3 documents" in done.stdout
    metadata = stored_metadata(corral, "a1")
    assert {key: metadata[key] for key in ("source", "day", "by", "eur", "sold")} == {
        "source": table.name, "day": "2026-01-05", "by": "eva", "eur": 3.5, "sold": True,
    }  # fmt: skip
    assert metadata["sold"] is True
    assert metadata["day_timestamp"] == 1767571200
    assert not {"no", "note"} & metadata.keys()
    assert "3 unchanged" in corral("ingest", "farm", table, *CHOICE).stdout


def test_filters_select_rows(corral: Corral, tmp_path: Path) -> None:
    """A date compares as text and as a number, a price as a number, a boolean as itself."""
    corral("ingest", "farm", written(tmp_path / "sales.csv", ROWS), *CHOICE, "--create")
    assert ids(corral, type="gte", key="day", value="2026-02-01") == ["a2", "a3"]
    assert ids(corral, type="lt", key="day_timestamp", value=1769904000) == ["a1"]
    assert ids(corral, type="lt", key="eur", value=10) == ["a1", "a3"]
    assert ids(corral, type="eq", key="sold", value=False) == ["a2"]


def test_a_workbooks_dates_are_iso_text(corral: Corral, tmp_path: Path) -> None:
    """A day has no time; a moment has one. Whole numbers have no fraction, as ids neither."""
    rows = [{
        "no": 7, "day": datetime.datetime(2026, 1, 5), "at": datetime.datetime(2026, 1, 5, 6, 30),
        "n": 4, "note": "Hay.",
    }]  # fmt: skip
    corral("ingest", "farm", written(tmp_path / "days.xlsx", rows), *CHOICE, "--create")
    metadata = stored_metadata(corral, "7")
    assert (metadata["day"], metadata["day_timestamp"]) == ("2026-01-05", 1767571200)
    assert (metadata["at"], metadata["at_timestamp"]) == ("2026-01-05T06:30:00", 1767594600)
    assert (metadata["n"], type(metadata["n"])) == (4, int)


def test_parquet_has_types(corral: Corral, tmp_path: Path) -> None:
    """Days, moments with and without a zone, decimals, lists; bytes and not-a-number are left out.

    If this fails: filters on a column of a data lake find nothing, or its rows are refused.
    """
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    moment = datetime.datetime(2026, 1, 5, 6, 30, tzinfo=datetime.UTC)
    table = pyarrow.table({
        "no": [7], "note": ["Hay."], "day": [datetime.date(2026, 1, 5)], "at": [moment],
        "ns": pyarrow.array([1_767_594_600_000_000_001], pyarrow.timestamp("ns")),
        "eur": [Decimal("3.50")], "tags": [["dry", "sweet"]], "raw": [b"x"], "nan": [float("nan")],
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "days.parquet")
    done = corral("ingest", "farm", tmp_path / "days.parquet", *CHOICE, "--create")
    assert done.exit_code == 0, done.output
    metadata = stored_metadata(corral, "7")
    assert (metadata["day"], metadata["day_timestamp"]) == ("2026-01-05", 1767571200)
    assert (metadata["at"], metadata["at_timestamp"]) == ("2026-01-05T06:30:00+00:00", 1767594600)
    assert (metadata["ns"], metadata["ns_timestamp"]) == ("2026-01-05T06:30:00", 1767594600)
    assert (metadata["eur"], metadata["tags"]) == (3.5, ["dry", "sweet"])
    assert not {"raw", "nan"} & metadata.keys()


def test_parquet_without_records_is_skipped(corral: Corral, tmp_path: Path) -> None:
    """Its line names the option that takes it, whatever the file's name is."""
    (tmp_path / "part-0").write_bytes(b"PAR1....PAR1")
    (tmp_path / "hay.md").write_text("# Hay")
    done = corral("ingest", "farm", tmp_path, "--create")
    assert done.exit_code == 0, done.output
    assert "Skipped (a Parquet table; --records takes its rows)" in done.stderr


def test_columns_are_chosen(corral: Corral, tmp_path: Path) -> None:
    """`--metadata` takes columns and, as without `--records`, values of every document."""
    options = ["--metadata", "day, by", "--metadata", "team=sheep"]
    table = written(tmp_path / "sales.csv", ROWS)
    assert corral("ingest", "farm", table, *CHOICE, *options, "--create").exit_code == 0
    metadata = stored_metadata(corral, "a2")
    assert (metadata["by"], metadata["team"]) == ("tom", "sheep")
    assert not {"eur", "sold"} & metadata.keys()


def test_codes_stay_text(corral: Corral, tmp_path: Path) -> None:
    """A column of a text file with a number that begins with a zero holds codes, not numbers."""
    rows = [
        {"no": "007", "code": "0451", "n": "1e999", "note": "Hay."},
        {"no": "8", "code": "451", "n": "", "note": "Rye."},
    ]
    corral("ingest", "farm", written(tmp_path / "codes.csv", rows), *CHOICE, "--create")
    metadata = stored_metadata(corral, "007")
    assert (metadata["code"], metadata["n"]) == ("0451", "1e999")
    metadata = stored_metadata(corral, "8")
    assert metadata["code"] == "451"
    assert "n" not in metadata


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_bad_row_changes_nothing_else(corral: Corral, tmp_path: Path, suffix: str) -> None:
    """An empty text, a missing id, an id twice: each fails with file and row, the rest goes in.

    Of two rows with one id the first goes in. The exit code is 1.

    If this fails: one bad row hides a table, or a row is lost without a word.
    """
    bad = [{**ROWS[0], "note": " "}, {**ROWS[1], "no": ""}, {**ROWS[2], "note": "Again."}]
    table = written(tmp_path / f"sales.{suffix}", [*ROWS[1:], *bad])
    done = corral("ingest", "farm", table, *CHOICE, "--create")
    assert done.exit_code == 1
    assert "ingested 2 documents" in done.stdout
    row = 4 if suffix == "csv" else 3
    assert f"{table.name} row {row}: column 'note' is empty" in done.stderr
    assert f"{table.name} row {row + 1}: column 'no' is empty" in done.stderr
    assert f"{table.name} row {row + 2}: its id 'a3' is that in " in done.stderr
    assert f"{table.name} row {row - 1}" in done.stderr
    shown = corral("documents", "show", "farm", "a3", "--json")
    assert json.loads(shown.stdout)["chunks"][0]["content"] == "Rye is out."


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "no,text\n1,Hay.\n", "The table has no column 'note'. Its columns: no, text."),
        ("a.csv", "no,note,note\n1,Hay.,Rye.\n", "Two columns of the table have one name"),
        ("a.csv", "no,note\n1,Hay.,more\n", "row 2: it has 3 cells, the header has 2"),
        ("a.csv", 'no,note\n1,"Hay\n', "broken at line"),
        ("a.parquet", "PAR1 is no table", "The Parquet file cannot be read"),
        ("a.json", "{", "not JSON"),
        ("a.json", '{"no": 1}', "not a list of objects"),
        ("a.json", '["Hay", {"no": 1, "note": ["x"]}]', "row 1: it is not an object"),
        ("a.json", '[{"no": 1, "note": ["x"]}]', "column 'note' must be text (got list)"),
        ("a.jsonl", '{"no": 1, "note": "Hay"}\n{', "row 2: not JSON"),
        ("a.xlsx", "no book", "Excel"),
    ],
)
def test_a_broken_table_is_said(
    corral: Corral, tmp_path: Path, name: str, text: str, said: str
) -> None:
    """The message names the file, the row if it is about one, and what is wrong."""
    (tmp_path / name).write_text(text)
    done = corral("ingest", "farm", tmp_path / name, *CHOICE, "--create")
    assert done.exit_code == 1, done.output
    assert f"{name}" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--records", "--text", "note"], "need the columns --text and --id."),
        (["--text", "note"], "--text and --id need --records or --sql."),
        ([*CHOICE, "--sync", "--yes"], "--sync is for files"),
        ([*CHOICE, "--title", "Sales"], "--title is for a file"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    corral: Corral, tmp_path: Path, options: list[str], said: str
) -> None:
    """Exit code 2, and nothing is registered."""
    table = written(tmp_path / "sales.csv", ROWS)
    refused = corral("ingest", "farm", table, *options, "--create")
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert corral("dbs", "list").stdout.startswith("No vector DB")


def test_rows_go_to_a_server(invoke: Corral, server_url: str, tmp_path: Path) -> None:
    """An address as a text stays text; a file that is no table is skipped."""
    to: Corral = partial(invoke, "--url", server_url)
    written(tmp_path / "sales.csv", [{**ROWS[0], "note": "https://farm.example/hay"}])
    (tmp_path / "read.md").write_text("# Hay")
    done = to("ingest", "farm", tmp_path, *CHOICE, "--create")
    assert done.exit_code == 0, done.output
    assert "Skipped (not CSV, TSV, JSON, JSONL, Parquet or a workbook)" in done.stderr
    assert stored_metadata(to, "a1")["eur"] == 3.5
    to("dbs", "delete", "farm", "--yes")
