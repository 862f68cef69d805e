"""Large bodies: read in pieces, so that other threads have their turn in between.

A thread does not help where one call holds the interpreter for its whole time, as reading JSON
does: 45 MiB of embeddings stop the event loop for half a second from wherever they are read. So a
body whose bulk is one list of objects, as an insert's is, is cut between these objects without
being read, and each piece is read as a small body of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

PIECE_BYTES = 256 * 1024
"""About the size of a piece; an object that is larger is a piece of its own."""
MOST_REST_BYTES = 256 * 1024
"""Most of a body that may stand beside its list, as each piece repeats it."""
MOST_OBJECTS = 100_000
"""A list of more is read whole: it is beyond every limit, and is refused."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
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

    None where it is not one object with one list of objects and little beside it: then there is
    nothing to cut, or something is wrong with it, which reading it whole will tell.
    """
    found, start, end = Pieces(), 0, 0
    for depth, key, token in _structure(raw):
        kind = token[0]
        if depth == 2 and kind == b"[":
            if found.name:
                return None
            found.name, end = key, token.end()
        elif depth == 3 and kind in _OPENING:
            wanted = b"," if found.objects else b""
            if kind != b"{" or raw[end : token.start()].strip(_SPACE) != wanted:
                return None
            start = token.start()
        elif depth == 3:
            end = token.end()
            found.objects.append((start, end))
            if len(found.objects) > MOST_OBJECTS:
                return None
        elif depth == 2 and kind == b"]":
            if not found.objects or raw[end : token.start()].strip(_SPACE):
                return None
            found.before, found.after = raw[: found.objects[0][0]], raw[end:]
    return found if found.after and len(found.rest) <= MOST_REST_BYTES else None


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
