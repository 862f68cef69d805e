"""Bodies become models; large ones in pieces, so that other threads have their turn in between.

A thread does not help if one call holds the interpreter for its whole time, as reading JSON
does: 45 MiB of embeddings stop the event loop for half a second from wherever they are read. So a
body whose bulk is one list of objects, as an insert's is, is cut between these objects without
being read, and each piece is read as a small body of its own.
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
"""Minimum size of a body that is parsed in a thread (about 1 ms), beside other requests."""

PIECE_BYTES = 256 * 1024
"""About the size of a piece; an object that is larger is a piece of its own."""
MAX_REST_BYTES = 256 * 1024
"""Maximum size of the rest of a body beside its list, because each piece repeats it."""
MAX_OBJECTS = 100_000
"""A list of more is read whole: it is beyond every limit, and is refused."""

# A string that does not end is one token to the end of the body: to look for its end again from
# each quotation mark in it would take minutes for some 100 KB.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_SPACE = b" \t\r\n"
_OPENING = (b"[", b"{")


@dataclass(slots=True)
class Pieces:
    """A body cut up.

    Attributes:
        name: The key of the list.
        before, after: What stands before the first and behind the last object of the list.
        objects: Where each object begins and ends.
    """

    name: str = ""
    before: bytes = b""
    after: bytes = b""
    objects: list[tuple[int, int]] = field(default_factory=list)

    def bodies(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield bodies that hold a part of the list each, with the number of its first object."""
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
    """Cut a body between the objects of its list.

    None if it is not one object with one list of objects and little beside it. Such a body is read
    whole.
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
    """Yield the brackets of a body's lists down to their objects, each with its depth and key."""
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
    """Return True if reading a body would hold up other requests."""
    return len(raw) >= LARGE_BODY_BYTES


def check_content_type(request: Request) -> None:
    """Refuse a body that does not call itself JSON.

    A web page can make a browser send text/plain to any address, this server's too, without
    asking; application/json it cannot.
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
    """Cut a large body into pieces, once; return None if it is small or cannot be cut."""
    if not is_large(raw):
        return None
    if not hasattr(request.state, "pieces"):
        request.state.pieces = await asyncio.to_thread(cut, raw)
    return cast(Pieces | None, request.state.pieces)


async def read_body(raw: bytes, model: type[BaseModel], pieces: Pieces | None) -> BaseModel:
    """Return a body as its model.

    Args:
        raw: The body.
        model: What it must be.
        pieces: As `cut_once` returns them.

    Raises:
        InvalidRequest: It is empty, no JSON, or not what the model takes.
    """
    if not raw:
        raise InvalidRequest("The body is empty.", hint="Send a JSON object.")
    if not is_large(raw):
        return _validate(raw, model)
    if pieces is None or pieces.name not in model.model_fields:
        return await asyncio.to_thread(_validate, raw, model)
    return await asyncio.to_thread(_validate_pieces, raw, model, pieces)


def _validate_pieces(raw: bytes, model: type[BaseModel], pieces: Pieces) -> BaseModel:
    """Read a body piece by piece; the first that is wrong is refused as the whole would be."""
    read = [_validate(body, model, first) for first, body in pieces.bodies(raw)]
    joined = [item for part in read for item in getattr(part, pieces.name)]
    return read[0].model_copy(update={pieces.name: joined})


def _validate(raw: bytes, model: type[BaseModel], first: int = 0) -> BaseModel:
    """Read a body, or a piece of one whose list begins with the item of number `first`."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise from_pydantic(error, raw, model, first=first) from None
