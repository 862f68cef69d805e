"""Lists of documents over HTTP: sorted, found by name, with details; and their attributes."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.principal import Role

from .harness import InProcess, message_of, wait_until
from .secured import holder

PATH = "/v1/vector-dbs/db/documents"


@pytest.fixture
def barn(app: InProcess) -> InProcess:
    """Return the app with three documents of different sizes, each of one chunk."""
    app.register()
    texts = {"b": "Hay is dry.", "a": "Straw.", "c": "Oats are for the winter."}
    documents = [
        {"document_id": name, "content": text, "metadata": {"title": f"Title {name}", "n": size}}
        for size, (name, text) in enumerate(texts.items())
    ]
    body = {"vector_db_id": "db", "documents": documents, "chunk_size_in_tokens": 64}
    app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
    return app


def ids(page: dict[str, Any]) -> list[str]:
    """Return the ids of the documents on a page."""
    return [each["document_id"] for each in page["data"]]


@pytest.mark.parametrize(
    ("query", "wanted", "total"),
    [
        ("sort=name", "abc", 3),
        ("order=desc", "cba", 3),
        ("sort=size", "abc", 3),
        ("sort=size&order=desc&limit=2", "cb", 3),
        ("sort=id&offset=1", "bc", 3),
        ("offset=7", "", 3),
        ("q=TITLE%20B", "b", 1),
        ("q=%25", "", 0),
        ("q=", "abc", 3),
    ],
)
def test_documents_are_sorted_and_found_by_name(
    barn: InProcess, query: str, wanted: str, total: int
) -> None:
    """Each page says how many documents there are, and whether more follow."""
    page = barn.ok("GET", f"{PATH}?{query}")
    assert ("".join(ids(page)), page["total"]) == (wanted, total)
    assert page["has_more"] == (query.endswith("limit=2"))
    assert all(each["size_bytes"] > 0 and each["updated_at"] > 0 for each in page["data"])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("sort=color", "sort"),
        ("order=up", "order"),
        ("offset=-1", "offset"),
        ("offset=10000001", "offset"),
        ("q=" + "x" * 256, "q"),
        ("after=a&q=b", "after"),
        ("after=a&offset=0", "after"),
        ("details=true&limit=101", "limit"),
    ],
)
def test_a_bad_list_is_refused(barn: InProcess, query: str, field: str) -> None:
    """The refusal names the parameter."""
    refused = barn.send("GET", f"{PATH}?{query}")
    assert refused.status_code == 400
    assert field in message_of(refused)


def test_details_have_attributes_acl_and_the_newest_job(barn: InProcess) -> None:
    """A document of a job has its state, and one that came otherwise has none."""
    document = {"document_id": "d", "content": "Barley.", "acl": ["user:ann"]}
    body = {"vector_db_id": "db", "documents": [document]}
    [job] = barn.ok("POST", "/v1/jobs", body)["jobs"]
    wait_until(lambda: barn.ok("GET", f"/v1/jobs/{job['job_id']}")["status"] == "completed")
    listed = barn.ok("GET", f"{PATH}?details=true")["data"]
    found = {each["document_id"]: each for each in listed}
    assert found["b"]["attributes"] == {"title": "Title b", "n": 0}
    assert "job" not in found["b"]
    assert (found["d"]["acl"], found["d"]["job"]["status"]) == (["user:ann"], "completed")
    assert found["d"]["job"]["job_id"] == job["job_id"]


def test_a_reader_gets_no_acl(barn: InProcess) -> None:
    """The list names no people or groups to who may not write."""
    barn.ok("PATCH", f"{PATH}/a", {"acl": ["user:ann", "tenant:*"]})
    root = holder(barn, "root", Role.ADMIN)
    reader = holder(barn, "ann")
    acls = [
        [each.get("acl") for each in who.ok("GET", f"{PATH}?details=true&sort=name")["data"]]
        for who in (root, reader)
    ]
    assert acls == [[["tenant:*", "user:ann"], None, None], [None] * 3]


def test_attributes_are_replaced_without_embedding(barn: InProcess) -> None:
    """The title stays unless the request has one; filters see the new values at once."""
    changed = barn.ok("PATCH", f"{PATH}/a", {"attributes": {"color": "red"}})
    assert changed == {"document_id": "a", "chunk_count": 1, "attributes": {"color": "red"}}
    metadata = barn.ok("GET", f"{PATH}/a")["metadata"]
    assert (metadata["title"], metadata["color"], "n" in metadata) == ("Title a", "red", False)
    red = {"type": "eq", "key": "color", "value": "red"}
    assert [c["content"] for c in barn.query("straw", filters=red)["chunks"]] == ["Straw."]
    barn.ok("PATCH", f"{PATH}/a", {"attributes": {"title": "New"}})
    assert ids(barn.ok("GET", f"{PATH}?q=new")) == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"attributes": None},
        {"attributes": {"document_id": "x"}},
        {"attributes": {"a": 1}, "acl": None},
        {"attributes": [1]},
    ],
)
def test_a_bad_change_changes_nothing(barn: InProcess, body: dict[str, Any]) -> None:
    """It gets a 400, and the document is as before."""
    before = barn.ok("GET", f"{PATH}/a")
    assert barn.send("PATCH", f"{PATH}/a", body).status_code == 400
    assert barn.ok("GET", f"{PATH}/a") == before
    unknown = barn.send("PATCH", f"{PATH}/x", {"attributes": {}})
    assert "no document" in message_of(unknown)
