"""Rows over HTTP: in the body, or in an uploaded table."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from .harness import InProcess, Json, message_of, wait_until

ROWS: list[dict[str, Any]] = [
    {"no": 4, "note": "Hay is in.", "day": "2026-03-01", "eur": 3.5, "by": "eva"},
    {"no": 5, "note": "https://farm.example/oats", "day": "2026-02-01", "eur": 20.0, "by": "tom"},
]
COLUMNS = {"text": "note", "id": "no"}


def submit(app: InProcess, **body: Any) -> Json:
    """Submit rows, wait for their jobs, and return the reply."""
    reply: Json = app.ok("POST", "/v1/jobs", {"vector_db_id": "db", "records": COLUMNS, **body})
    batch = reply["batch_id"]
    wait_until(lambda: all(
        job["status"] == "completed" for job in app.ok("GET", f"/v1/jobs?batch_id={batch}")["data"]
    ))  # fmt: skip
    return reply


def upload(app: InProcess, name: str, data: bytes) -> str:
    """Upload a file and return its id."""
    files, fields = {"file": (name, data)}, {"purpose": "user_data"}
    stored: str = app.send("POST", "/v1/files", files=files, data=fields).json()["id"]
    return stored


def metadata(app: InProcess, document_id: str) -> Json:
    """Return the metadata of a document."""
    shown: Json = app.ok("GET", f"/v1/vector-dbs/db/documents/{document_id}")["metadata"]
    return shown


def tables() -> dict[str, bytes]:
    """Return a table in each format that is uploaded as it is."""
    lines = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]
    made = {
        "a.csv": "\n".join(lines).encode(),
        "a.json": json.dumps(ROWS).encode(),
        "a.jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    }
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), out)
    return {**made, "a.parquet": out.getvalue()}


def test_rows_of_the_body_are_documents(app: InProcess) -> None:
    """Each has typed metadata; an address stays text; equal rows are unchanged.

    If this fails: records need a file, or a row makes the server fetch an address.
    """
    app.register("db")
    reply = submit(app, rows=ROWS)
    assert [job["document_id"] for job in reply["jobs"]] == ["4", "5"]
    about = metadata(app, "4")
    assert (about["day"], about["day_timestamp"]) == ("2026-03-01", 1772323200)
    assert (about["eur"], about["by"]) == (3.5, "eva")
    shown = app.ok("GET", "/v1/vector-dbs/db/documents/5")
    assert shown["chunks"][0]["content"] == "https://farm.example/oats"
    again = submit(app, rows=ROWS, skip_unchanged=True)
    assert (again["jobs"], again["unchanged"]) == ([], ["4", "5"])


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.parquet"])
def test_rows_of_an_uploaded_table_are_documents(app: InProcess, name: str) -> None:
    """With the chosen columns as metadata, and the file's name as the source."""
    app.register("db")
    file_id = upload(app, name, tables()[name])
    chosen = {**COLUMNS, "metadata": ["day", "eur"]}
    submit(app, file_ids=[file_id], records=chosen)
    about = metadata(app, "4")
    assert about["source"] == name
    assert (about["day_timestamp"], about["eur"]) == (1772323200, 3.5)
    assert "by" not in about


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"rows": ROWS, "records": None}, "rows need records"),
        ({"rows": [{"no": 1}, *ROWS]}, "row 1: column 'note' is empty"),
        ({"rows": [*ROWS, ROWS[0]]}, "row 3: its id '4' is that in row 1"),
        ({"rows": [{"note": "Hay."}]}, "The table has no column 'no'"),
        ({"rows": [{**ROWS[0], "no": "a" * 2000}]}, "row 1: "),
        ({"rows": ROWS, "records": {"text": "note"}}, "records.id"),
        ({"rows": ["Hay."]}, "rows[0]"),
        ({"rows": ROWS * 600}, "max_documents_per_insert"),
        ({}, "no documents, no files and no rows"),
    ],
)
def test_bad_rows_change_nothing(app: InProcess, body: Json, said: str) -> None:
    """The error names the row, and no row is queued."""
    app.register("db")
    whole = {"vector_db_id": "db", "records": COLUMNS, **body}
    refused = app.send("POST", "/v1/jobs", whole)
    assert refused.status_code in (400, 413), refused.text
    assert said in message_of(refused)
    assert app.ok("GET", "/v1/jobs")["data"] == []


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"no,note\n1,Hay.\n2,\n", "a.csv row 3: column 'note' is empty"),
        ("a.md", b"# Hay\n\nDry.", "The file is no table"),
        ("a.parquet", b"PAR1 is no table", "The Parquet file cannot be read"),
        ("a.csv", b"no,note\n" + b"1,Hay.\n" * 10_001, "More than 10,000 rows"),
    ],
)
def test_a_bad_table_changes_nothing(app: InProcess, name: str, data: bytes, said: str) -> None:
    """The error names the file's row or what is wrong with the file, and no row is queued."""
    app.register("db")
    file_id = upload(app, name, data)
    body = {"vector_db_id": "db", "records": COLUMNS, "file_ids": [file_id]}
    refused = app.send("POST", "/v1/jobs", body)
    assert refused.status_code == 400, refused.text
    assert said in message_of(refused)
    assert app.ok("GET", "/v1/jobs")["data"] == []
