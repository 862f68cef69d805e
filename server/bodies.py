"""Parses bodies into models; large ones in pieces, so that other threads run in between.

A thread does not help, because parsing JSON holds the interpreter lock throughout: 45 MiB of
embeddings block the event loop for half a second from any thread. So a body that mainly consists of
one list of objects, such as an insert, is split between these objects without parsing, and each
piece is parsed as a small body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache
from typing import cast

from fastapi import Request
from pydantic import BaseModel, ValidationError

from corral.api.errors import InvalidRequest
from corral.server.validation import from_pydantic

LARGE_BODY_BYTES = 256 * 1024
"""Minimum size of a body that is parsed in a thread (about 1 ms), while others are served."""

PIECE_BYTES = 256 * 1024
"""Approximate size of a piece; a larger object is a piece by itself."""
MAX_REST_BYTES = 256 * 1024
"""Maximum size of the body without its list, because each piece repeats it."""
MAX_OBJECTS = 100_000
"""A longer list is parsed whole: it exceeds every limit and will be refused."""

# An unterminated string is one token to the end of the body: searching for its end again from each
# quotation mark would take minutes for 100 KB.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_SPACE = b" \t\r\n"
_OPENING = (b"[", b"{")


@dataclass(slots=True)
class Pieces:
    """A split body.

    Attributes:
        name: The key of the list.
        before, after: The bytes before the first and after the last object of the list.
        objects: Start and end of each object.
    """

    name: str = ""
    before: bytes = b""
    after: bytes = b""
    objects: list[tuple[int, int]] = field(default_factory=list)

    def bodies(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield bodies with a part of the list each, and the number of its first object."""
        first = 0
        for number, (_, end) in enumerate(self.objects):
            start = self.objects[first][0]
            following = self.objects[number + 1 : number + 2]
            if not following or following[0][1] - start > PIECE_BYTES:
                yield first, self.before + raw[start:end] + self.after
                first = number + 1

    @property
    def rest(self) -> bytes:
        """The body with an empty list."""
        return self.before + self.after


def cut(raw: bytes) -> Pieces | None:
    """Split a body between the objects of its list.

    Return None if the body is not an object with one list of objects and little else; it is then
    parsed whole.
    """
    pieces, start, end = Pieces(), 0, 0
    for depth, key, token in _structure(raw):
        kind = token[0]
        if depth == 2 and kind == b"[":
            if pieces.name:
                return None
            pieces.name, end = key, token.end()
        elif depth == 3 and kind in _OPENING:
            wanted = b"," if pieces.objects else b""
            if kind != b"{" or raw[end : token.start()].strip(_SPACE) != wanted:
                return None
            start = token.start()
        elif depth == 3:
            end = token.end()
            pieces.objects.append((start, end))
            if len(pieces.objects) > MAX_OBJECTS:
                return None
        elif depth == 2 and kind == b"]":
            if not pieces.objects or raw[end : token.start()].strip(_SPACE):
                return None
            pieces.before, pieces.after = raw[: pieces.objects[0][0]], raw[end:]
    return pieces if pieces.after and len(pieces.rest) <= MAX_REST_BYTES else None


def _structure(raw: bytes) -> Iterator[tuple[int, str, re.Match[bytes]]]:
    """Yield the brackets of a body's lists, down to their objects, with depth and key."""
    depth, key, in_list = 0, b"", False
    for token in _TOKEN.finditer(raw):
        kind = token[0][:1]
        if kind == b'"':
            key = token[0] if depth == 1 else key
            continue
        depth += kind in _OPENING
        if depth == 2 and kind in _OPENING:
            in_list = kind == b"["
        if in_list and depth in (2, 3):
            yield depth, key[1:-1].decode("utf-8", "replace"), token
        depth -= kind not in _OPENING


# --- from bytes to a model ------------------------------------------------------------------------


def is_large(raw: bytes) -> bool:
    """Return True if parsing a body would delay other requests."""
    return len(raw) >= LARGE_BODY_BYTES


def check_content_type(request: Request) -> None:
    """Refuse a body that is not declared as JSON.

    A web page can make a browser send text/plain to any server without a preflight request, but not
    application/json.
    """
    given = request.headers.getlist("content-type")
    if len(given) != 1 or not _is_json(given[0]):
        raise InvalidRequest(
            "The request must have one content-type header, and it must be JSON (got "
            f"{len(given)}).",
            hint="Send the body as JSON, with the header content-type: application/json.",
            field="content-type",
        )


@lru_cache
def _is_json(content_type: str) -> bool:
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (
        subtype == "json" or subtype.endswith("+json")
    )


async def cut_once(request: Request, raw: bytes) -> Pieces | None:
    """Split a large body into pieces, once; return None if it is small or cannot be split."""
    if not is_large(raw):
        return None
    if not hasattr(request.state, "pieces"):
        request.state.pieces = await asyncio.to_thread(cut, raw)
    return cast(Pieces | None, request.state.pieces)


async def read_body(raw: bytes, model: type[BaseModel], pieces: Pieces | None) -> BaseModel:
    """Parse a body into its model.

    Args:
        raw: The body.
        model: The body's model.
        pieces: From `cut_once`.

    Raises:
        InvalidRequest: The body is empty, not JSON, or does not match the model.
    """
    if not raw:
        raise InvalidRequest("The body is empty.", hint="Send a JSON object.")
    if not is_large(raw):
        return _validate(raw, model)
    if pieces is None or pieces.name not in model.model_fields:
        return await asyncio.to_thread(_validate, raw, model)
    return await asyncio.to_thread(_validate_pieces, raw, model, pieces)


def _validate_pieces(raw: bytes, model: type[BaseModel], pieces: Pieces) -> BaseModel:
    """Parse a body piece by piece; an error is reported as for the whole body."""
    read = [_validate(body, model, first) for first, body in pieces.bodies(raw)]
    joined = [item for part in read for item in getattr(part, pieces.name)]
    return read[0].model_copy(update={pieces.name: joined})


def _validate(raw: bytes, model: type[BaseModel], first: int = 0) -> BaseModel:
    """Parse a body, or a piece with the list's items from number `first` on."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise from_pydantic(error, raw, model, first=first) from None
