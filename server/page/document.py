"""The page at `/document`: a document's text, with the passage marked that a citation links to.

It is plain HTML that works without a script. All text of a document is escaped, and the page's
security policy allows only its style sheet. A browser sends no API key when it follows a link, so a
server that requires one answers with a form (`static/document.js`), which repeats the request with
the key and keeps it in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.chunks import Chunk
from corral.api.document_names import end_of, shown_place, title_of, web_address
from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import Identifier
from corral.providers.base.documents import WHOLE, read_document, unknown_document
from corral.providers.rag.passages import document_text, repeated, span
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.rewriting import RefusalRewriter
from corral.server.routing import NotFoundRoute, StackOf
from corral.server.tools.places import PAGE, PASSAGE, Place

CHUNKS_PER_PAGE = 200
"""Maximum number of chunks of a document on one page."""
CHUNKS_BEFORE = 20
"""Chunks shown before the passage if the document does not fit on one page."""

# A refusal has the form for a key, and with it the only script.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY}

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="page/console.css">
{head}</head>
<body>
<header><a href="./">Corral</a></header>
<p id="message" class="error" role="status" aria-live="polite">{message}</p>
<main class="document">
<h1 dir="auto">{title}</h1>
{body}
</main>
</body>
</html>
"""
_KEY_FORM = """\
<form id="key-form">
<label>API key <input id="key" type="password" autocomplete="off" required></label>
<button>Show the document</button>
<span>The key stays in this page's memory and is gone when you leave. If you have none, ask who runs
this server: <code>corral keys create NAME</code> creates one.</span>
</form>"""
_SCRIPT = '<script type="module" src="page/document.js"></script>\n'

router = APIRouter(tags=["Documents"], route_class=NotFoundRoute, responses=ERRORS)


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """Chunks of a document, in order.

    Attributes:
        place: The document.
        chunks: The chunks to show.
        offset: Number of chunks before them.
        total: Number of chunks of the document.
        marked: Indexes in `chunks` of the first and the last chunk of the passage; None if it
            is not in them.
    """

    place: Place
    chunks: Sequence[Chunk]
    offset: int
    total: int
    marked: tuple[int, int] | None


@router.get(PAGE, summary="Show a document to people", response_class=Response)
async def show(
    stack: StackOf,
    vector_db_id: Annotated[Identifier, Query(description="Vector DB of the document.")],
    document_id: Annotated[
        str, Query(description="Id of the document; empty: show the chunk alone.")
    ] = "",
    chunk_id: Annotated[
        list[str] | None,
        Query(description="Chunks to mark, from the first to the last of these; at most 2."),
    ] = None,
    offset: Annotated[
        int | None, Query(ge=0, description="Chunks to skip; null: begin near the marked ones.")
    ] = None,
) -> HTMLResponse:
    """Return an HTML page with a document's text. Browsers get errors as pages, too."""
    chunk_ids = chunk_id or []
    if len(chunk_ids) > 2 or not (document_id or chunk_ids):
        raise InvalidRequest(
            f"Pass document_id, chunk_id, or both, and at most 2 chunk_id (got {len(chunk_ids)}).",
            field="chunk_id",
        )
    audit.current().names(vector_db_id)
    chunks = await _chunks(stack, vector_db_id, document_id, chunk_ids)
    audit.current().returns(vector_db_id, [chunk.chunk_id for chunk in chunks])
    excerpt = _excerpt(Place.of(vector_db_id, chunks[0]), chunks, chunk_ids, offset)
    missing = bool(chunk_ids) and excerpt.marked is None and offset is None
    return _page(title_of(chunks[0]), "\n".join(_body(excerpt, missing=missing)))


async def _chunks(
    stack: Stack, vector_db_id: str, document_id: str, chunk_ids: Sequence[str]
) -> Sequence[Chunk]:
    """Return the chunks of a document in order, or chunks that belong to no document.

    Raises:
        NotFound: The vector DB, the document or the chunk does not exist, or the caller may not
            read it.
    """
    index = await stack.index(vector_db_id)
    if document_id:
        document = await read_document(index, document_id, WHOLE)
        if document is None:
            raise unknown_document(vector_db_id, document_id)
        chunks = document.chunks
    else:
        chunks = await index.get_chunks(chunk_ids)
        if not chunks:
            raise NotFound(
                f"There is no chunk {chunk_ids[0]!r} in vector DB {vector_db_id!r}.",
                field="chunk_id",
            )
    # Chunks without a place in the document follow the text; see `document_text`.
    return sorted(chunks, key=lambda chunk: span(chunk) is None)


def _excerpt(
    place: Place, chunks: Sequence[Chunk], chunk_ids: Sequence[str], offset: int | None
) -> _Excerpt:
    """Return the part of a document that a page shows.

    Raises:
        NotFound: The document has at most `offset` chunks.
    """
    cited = [number for number, chunk in enumerate(chunks) if chunk.chunk_id in chunk_ids]
    if offset is None:
        near = max(cited[0] - CHUNKS_BEFORE, 0) if cited else 0
        offset = near if len(chunks) > CHUNKS_PER_PAGE else 0
    if offset >= len(chunks):
        raise NotFound(f"The document has <= {offset} chunks.", field="offset")
    shown = chunks[offset : offset + CHUNKS_PER_PAGE]
    marked = None
    if cited and cited[0] < offset + len(shown) and cited[-1] >= offset:
        marked = max(cited[0] - offset, 0), min(cited[-1] - offset, len(shown) - 1)
    return _Excerpt(place, shown, offset, len(chunks), marked)


def _body(excerpt: _Excerpt, *, missing: bool) -> Iterator[str]:
    """Yield the parts of the page below its title."""
    first = excerpt.chunks[0]
    about = {"Vector DB": excerpt.place.vector_db_id, "Document": excerpt.place.document_id}
    if excerpt.marked:
        about["Passage"] = _where([excerpt.chunks[number] for number in excerpt.marked])
    rows = [f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in about.items() if text]
    if address := web_address(first):
        link = escape(address)
        rows.append(f'<dt>Source</dt><dd><a href="{link}" rel="noopener">{link}</a></dd>')
    yield f"<dl>{''.join(rows)}</dl>"
    if missing:
        yield "<p>The cited passage is no longer in this document, which may have changed.</p>"
    links = list(_links(excerpt))
    yield from links
    yield f'<pre dir="auto">{_text(excerpt)}</pre>'
    yield from links


def _where(chunks: Sequence[Chunk]) -> str:
    """Return the pages or lines of a passage, and the headings above it."""
    begins, ends = chunks[0].chunk_metadata, chunks[-1].chunk_metadata
    if begins is None or ends is None:
        return ""
    last = {"page_end": ends.page_end or ends.page, **end_of(begins, ends)}
    return shown_place({**begins.model_dump(), **last})


def _text(excerpt: _Excerpt) -> str:
    """Return the text of an excerpt as HTML, the passage marked."""
    chunks, text = excerpt.chunks, document_text(excerpt.chunks)
    if excerpt.marked is None:
        return escape(text)
    first, last = excerpt.marked
    before, end = document_text(chunks[: first + 1]), len(document_text(chunks[: last + 1]))
    content = chunks[first].content
    if not before.endswith(content):  # a table's header, which the text has once
        content = content[repeated(chunks[first]) :]
    start = len(before) - len(content)
    passage = f'<mark id="{PASSAGE}">{escape(text[start:end])}</mark>'
    return f"{escape(text[:start])}{passage}{escape(text[end:])}"


def _links(excerpt: _Excerpt) -> Iterator[str]:
    """Yield the links to the other parts of a document that does not fit on one page."""
    if len(excerpt.chunks) == excerpt.total:
        return
    end = excerpt.offset + len(excerpt.chunks)
    parts = [f"Chunks {excerpt.offset + 1} to {end} of {excerpt.total}."]
    here = escape(excerpt.place.url("").lstrip("/"))
    if excerpt.offset:
        before = max(excerpt.offset - CHUNKS_PER_PAGE, 0)
        parts.append(f'<a href="{here}&amp;offset={before}">Earlier</a>')
    if end < excerpt.total:
        parts.append(f'<a href="{here}&amp;offset={end}">Later</a>')
    yield f"<p>{' '.join(parts)}</p>"


def _page(title: str, body: str, *, message: str = "", head: str = "") -> HTMLResponse:
    page = _PAGE.format(title=escape(title), body=body, message=escape(message), head=head)
    return HTMLResponse(page.encode("utf-8", "replace"), headers=_HEADERS)


class RefusalPages:
    """ASGI middleware that answers a browser's refused request for the page with a page.

    The status and the message stay; without a valid key, the page has the form for one. Clients
    that do not ask for HTML get the common JSON.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == PAGE:
            headers = Headers(scope=scope)
            if "text/html" in headers.get("accept", ""):
                keyless = "authorization" not in headers
                send = RefusalRewriter(send, partial(_refusal_page, keyless=keyless))
        await self._app(scope, receive, send)


def _refusal_page(status: int, body: bytes, *, keyless: bool) -> tuple[bytes, Mapping[str, str]]:
    """Return a refusal in the common form as a page, with its headers."""
    message = json.loads(body)["detail"]
    if status == 401:
        # without a key, the message is about a header, for programs
        shown = "" if keyless else message
        page = _page("This document needs an API key", _KEY_FORM, message=shown, head=_SCRIPT)
    else:
        page = _page("The document cannot be shown", "", message=message)
    return bytes(page.body), page.headers
