"""Scripted services on 127.0.0.1 that speak the formats of Docling Serve, Tika and Unstructured.

They "convert" files of the tests' own format, `SAMPLE`: a line, a title, and pages apart by form
feeds; anything else is refused as the real service refuses a damaged file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from html import escape
from http.server import BaseHTTPRequestHandler
from typing import Any

from corral.api.testing import Sample

from ..json_service import Reply, served

MARK = b"%SAMPLE"
TYPE = "application/x-sample"


def sample(title: str, *pages: str) -> Sample:
    """Return a file that the services convert."""
    words = tuple(word for page in pages for word in page.split())
    data = MARK + b"\n" + title.encode() + b"\n" + "\f".join(pages).encode()
    return Sample(TYPE, data + b"\n%END", words, len(pages))


@dataclass
class Request:
    """What a service got: the file, its name and type, the fields of the form, the headers."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes
    filename: str = ""
    mime_type: str = ""
    form: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Service:
    """A running service; `replies` are answered before the proper answers."""

    answer: Callable[[Request], Reply]
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)


def _converted(data: bytes) -> tuple[str, list[str]] | None:
    if not (data.startswith(MARK + b"\n") and data.endswith(b"\n%END")):
        return None
    _, title, text = data.decode().removesuffix("\n%END").split("\n", 2)
    return title, text.split("\f")


def docling(request: Request) -> Reply:
    """Answer as `POST /v1/convert/file` does."""
    if (request.method, request.path) != ("POST", "/v1/convert/file"):
        return Reply(404, b'{"detail":"Not Found"}')
    found = _converted(request.data)
    answer: dict[str, Any] = {"processing_time": 0.1, "timings": {}, "errors": []}
    document: dict[str, Any] = dict.fromkeys(
        ("md_content", "json_content", "html_content", "text_content", "doctags_content")
    )
    answer |= {"document": {"filename": request.filename, **document}}
    if found is None:
        errors = [{"component_type": "document_backend", "module_name": "x", "error_message": "?"}]
        return _json({**answer, "status": "failure", "errors": errors})
    [mark] = request.form["md_page_break_placeholder"]
    assert request.form["to_formats"] == ["md"]
    text = f"\n\n{mark}\n\n".join(found[1])
    answer["document"]["md_content"] = f"# {found[0]}\n\n<!-- image -->\n\n{text}"
    return _json({**answer, "status": "success"})


def tika(request: Request) -> Reply:
    """Answer as `PUT /tika` does to `Accept: text/html`."""
    if (request.method, request.path) != ("PUT", "/tika"):
        return Reply(404)
    found = _converted(request.data)
    if found is None:
        return Reply(422)
    pages = "".join(f'<div class="page"><p />\n<p>{escape(p)}</p>\n</div>\n' for p in found[1])
    head = f'<meta name="Content-Type" content="{TYPE}" />\n<title>{escape(found[0])}</title>'
    xhtml = f'<html xmlns="http://www.w3.org/1999/xhtml">\n<head>\n{head}\n</head>\n<body>{pages}'
    body = f'<?xml version="1.0" encoding="UTF-8"?>{xhtml}</body></html>'
    return Reply(200, body.encode(), {"content-type": "text/html;charset=utf-8"})


def unstructured(request: Request) -> Reply:
    """Answer as `POST /general/v0/general` does."""
    if (request.method, request.path) != ("POST", "/general/v0/general"):
        return Reply(404, b'{"detail":"Not Found"}')
    found = _converted(request.data)
    if found is None:
        return _json({"detail": "File does not appear to be valid"}, 422)

    def element(kind: str, text: str, page: int, **more: Any) -> dict[str, Any]:
        metadata: dict[str, Any] = {"filename": request.filename, "filetype": TYPE}
        metadata |= {"languages": ["eng"], "page_number": page, **more}
        return {"type": kind, "element_id": "6f", "text": text, "metadata": metadata}

    elements = [element("Header", "a running header", 1), element("Title", found[0], 1)]
    for number, text in enumerate(found[1], 1):
        elements.append(element("NarrativeText", text, number, parent_id="6f"))
    return _json(elements)


def _json(answer: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(answer).encode(), {"content-type": "application/json"})


def _parsed(handler: BaseHTTPRequestHandler) -> Request:
    body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
    headers = {name.lower(): value for name, value in handler.headers.items()}
    kind = headers.get("content-type", "")
    request = Request(handler.command, handler.path, headers, body, mime_type=kind)
    if not kind.startswith("multipart/form-data"):
        return request
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        name = str(part.get_param("name", header="content-disposition"))
        if part.get_filename():
            request.data, request.filename = content, str(part.get_filename())
            request.mime_type = part.get_content_type()
        else:
            request.form.setdefault(name, []).append(content.decode())
    # The parser drops the last line break of a part's content; find the file itself.
    boundary = re.search(r"boundary=([^;]+)", kind)
    assert boundary
    [raw] = [p for p in body.split(b"--" + boundary[1].encode()) if b"filename=" in p]
    request.data = raw.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
    return request


@contextmanager
def running(answer: Callable[[Request], Reply]) -> Iterator[Service]:
    """Run a service."""
    service = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the tests look at what the code under test says."""

        def do_GET(self) -> None:
            self._reply(Reply(body=b"{}"))

        def do_POST(self) -> None:
            request = _parsed(self)
            service.requests.append(request)
            self._reply(service.replies.pop(0) if service.replies else service.answer(request))

        do_PUT = do_POST

        def _reply(self, reply: Reply) -> None:
            self.close_connection = True
            if reply.hang_up:
                return
            self.send_response(reply.status)
            headers = {"content-length": str(len(reply.body)), "connection": "close"}
            for name, value in (headers | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    with served(Handler) as url:
        service.url = url.removesuffix("/v1")
        yield service
