"""Notebooks are read on each way in: an upload, as the page sends it, and an insert."""

from __future__ import annotations

import base64
import json

import pytest

from ..providers.ingestion.test_notebooks import WHOLE
from .harness import InProcess, wait_until

DATA = json.dumps(WHOLE).encode()


def texts(app: InProcess) -> str:
    """Return the chunks of the only document."""
    [document] = app.ok("GET", "/v1/vector-dbs/db/documents")["data"]
    path = f"/v1/vector-dbs/db/documents/{document['document_id']}"
    return "\n".join(chunk["content"] for chunk in app.ok("GET", path)["chunks"])


@pytest.mark.parametrize("named", ["sheep.ipynb", "sheep.json"])
def test_an_uploaded_notebook_is_read_by_cells(app: InProcess, named: str) -> None:
    """A browser sends a notebook as a file; what is stored are its cells.

    If this fails: look at `stated` in `providers/ingestion/read/detecting.py`: JSON is stored.
    """
    app.register()
    sent = {"files": {"file": (named, DATA, "application/octet-stream")}}
    uploaded = app.send("POST", "/v1/files", data={"purpose": "assistants"}, **sent).json()
    job = app.ok("POST", "/v1/jobs", {"vector_db_id": "db", "file_ids": [uploaded["id"]]})
    [waiting] = job["jobs"]
    wait_until(lambda: app.ok("GET", f"/v1/jobs/{waiting['job_id']}")["status"] == "completed")
    stored = texts(app)
    assert "print(6 * 7)" in stored
    assert "cell_type" not in stored


def test_an_inserted_notebook_is_read_by_cells(app: InProcess) -> None:
    """As a data: URI of any type that JSON has, and a broken one is a 400 that stores nothing."""
    app.register()
    for kind in ("application/x-ipynb+json", "application/json"):
        uri = f"data:{kind};base64,{base64.b64encode(DATA).decode()}"
        app.rag_insert({"document_id": "n", "content": {"uri": uri}})
        assert "How many are there?" in texts(app)
        assert "cell_type" not in texts(app)
    broken = {"document_id": "b", "content": "{", "mime_type": "application/x-ipynb+json"}
    body = {"vector_db_id": "db", "documents": [broken]}
    refused = app.send("POST", "/v1/tool-runtime/rag-tool/insert", body)
    assert refused.status_code == 400
    assert "Document 'b': The notebook cannot be read: it is not valid JSON" in refused.text
    assert len(app.ok("GET", "/v1/vector-dbs/db/documents")["data"]) == 1
