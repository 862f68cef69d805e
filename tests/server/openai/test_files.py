"""Files by OpenAI's API: upload, list, read, delete."""

from __future__ import annotations

from typing import Any

from openai.types import FileDeleted, FileObject

from ..harness import run_config
from .doubles import Clock, ClockedApp

PATH = "/v1/files"
EXPIRY = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
JSON_EXPIRY = '{"anchor": "created_at", "seconds": 3600}'


def test_a_file_comes_back_as_it_was_sent(app: ClockedApp, clock: Clock) -> None:
    """Its bytes, its name and its size are those of the upload, whatever the name holds."""
    content = bytes(range(256)) * 5000
    name = 'a "strange"\r\nname/../ü.bin'
    file = FileObject.model_validate(app.upload(content, name, "user_data", **EXPIRY))
    assert (file.bytes, file.purpose, file.status) == (len(content), "user_data", "processed")
    assert file.expires_at == file.created_at + 3600 == clock.now + 3600
    assert app.ok("GET", f"{PATH}/{file.id}") == file.model_dump(exclude={"status_details"})
    read = app.send("GET", f"{PATH}/{file.id}/content")
    assert read.content == content
    assert read.headers["x-content-type-options"] == "nosniff"
    assert read.headers["content-disposition"].startswith("attachment")
    FileDeleted.model_validate(app.ok("DELETE", f"{PATH}/{file.id}"))
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        error = app.refused(404, method, f"{PATH}/{file.id}{path}")
        assert (error["param"], error["code"]) == ("file_id", "not_found")


def test_files_come_in_pages(app: ClockedApp) -> None:
    """Newest first unless asked otherwise, one purpose if asked, each once."""
    ids = [app.upload(b"x%d" % number)["id"] for number in range(5)]
    other = app.upload(b"y", purpose="evals")["id"]
    first = app.ok("GET", f"{PATH}?limit=4")
    assert [each["id"] for each in first["data"]] == [other, *ids[:1:-1]][:4]
    assert (first["has_more"], first["first_id"]) == (True, other)
    rest = app.ok("GET", f"{PATH}?limit=4&after={first['last_id']}")
    assert [each["id"] for each in rest["data"]] == [ids[1], ids[0]]
    assert not rest["has_more"]
    oldest = app.ok("GET", f"{PATH}?order=asc&purpose=assistants")
    assert [each["id"] for each in oldest["data"]] == ids
    assert app.ok("GET", f"{PATH}?purpose=vision")["data"] == []


BAD: list[tuple[dict[str, str], str]] = [
    ({}, "purpose"),
    ({"purpose": "anything"}, "purpose"),
    ({"purpose": "assistants", "expires_after[anchor]": "created_at"}, "expires_after"),
    ({"purpose": "assistants", **EXPIRY, "expires_after[seconds]": "60"}, "expires_after[seconds]"),
    ({"purpose": "assistants", **EXPIRY, "expires_after": JSON_EXPIRY}, "expires_after"),
    ({"purpose": "assistants", "expires_after": "tomorrow"}, "expires_after"),
    (
        {"purpose": "assistants", "expires_after": '{"anchor": "created_at", "seconds": 60}'},
        "expires_after.seconds",
    ),
    ({"purpose": "assistants", **EXPIRY, "expires_after[anchor]": "x"}, "expires_after[anchor]"),
]


def test_bad_uploads_are_refused(app: ClockedApp) -> None:
    """Each is a 400 that names the field, and nothing is stored."""
    for fields, param in BAD:
        response = app.send_file(b"text", **fields)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert app.ok("GET", PATH)["data"] == []


def test_an_empty_file_is_refused(app: ClockedApp) -> None:
    """It holds nothing to find."""
    response = app.send_file(b"", purpose="assistants")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "file")


def test_a_form_without_a_file_is_refused(app: ClockedApp) -> None:
    """A form without the part `file`, and a body that is no form, are 400s."""
    for more in ({"data": {"purpose": "assistants"}}, {"content": b"{}"}):
        sent: dict[str, Any] = more
        assert app.send("POST", PATH, **sent).status_code == 400


def test_a_refused_form_or_query_says_what_was_sent(app: ClockedApp) -> None:
    """A text where a file belongs is told so in words; a number of a query is told as the number.

    If this fails: the sender reads of a class of the framework, or that `limit=0` is "a string".
    """
    sent: dict[str, Any] = {"data": {"purpose": "assistants", "file": "text"}}
    sent["files"] = {"more": ("a.txt", b"x")}
    said = app.send("POST", PATH, **sent).json()["error"]["message"]
    assert said == "file: send it as a file that has a filename."
    said = app.refused(400, "GET", f"{PATH}?limit=0")["message"]
    assert said.endswith("must be >= 1 (got 0).")
    assert app.refused(400, "GET", f"{PATH}?limit=many")["message"].endswith(
        "must be an integer (got a string)."
    )


def test_a_large_file_is_refused(tmp_path: Any, clock: Clock) -> None:
    """Beyond `files.max_mib` an upload is a 413, and leaves nothing; the body limit is another's.

    If this fails: one upload fills the disk, or the limit of JSON bodies holds for files.
    """
    config = run_config(files={"max_mib": 1}, limits={"max_body_mib": 0.01})
    with ClockedApp(tmp_path, clock, config) as app:
        assert app.upload(b"x" * (1 << 20))["bytes"] == 1 << 20
        for size in ((1 << 20) + 1, 20 << 20):
            response = app.send_file(b"x" * size, purpose="assistants")
            assert response.status_code == 413, response.text
            assert response.json()["error"]["code"] in ("too_large", "body_too_large")
        assert len(app.ok("GET", PATH)["data"]) == 1
        assert app.send("POST", "/v1/vector_stores", {"name": "x" * 20_000}).status_code == 413


def test_a_page_of_another_site_cannot_upload(app: ClockedApp) -> None:
    """A form that a browser sends for another site is a 403; programs say nothing of a site.

    If this fails: a web page puts files on the server of whoever looks at it.
    """
    sent: dict[str, Any] = {"files": {"file": ("a.txt", b"x")}, "data": {"purpose": "assistants"}}
    for path in (PATH, f"/v1/openai{PATH}"):
        refused = app.send("POST", path, headers={"sec-fetch-site": "cross-site"}, **sent)
        assert refused.status_code == 403, path
        assert app.send("POST", path, headers={"sec-fetch-site": "same-origin"}, **sent).is_success
    assert len(app.ok("GET", PATH)["data"]) == 2
