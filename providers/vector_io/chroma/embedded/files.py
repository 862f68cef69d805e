"""The files of a persisted graph, read without Chroma: those that a kill has torn too.

As Chroma 1.5.9 writes them: `data_level0.bin` holds a block of one size for each element (its
links, its embedding, its label), `length.bin` the lengths of what was normalized, and the pickle
which id has which label. A block is written anew where it lies, and holds the same embedding unless
that has changed.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER, BLOCKS, LENGTHS, LINKS = "header.bin", "data_level0.bin", "length.bin", "link_lists.bin"
ID_MAP = "index_metadata.pickle"
FILES = (HEADER, BLOCKS, LENGTHS, LINKS, ID_MAP)

_ELEMENTS = struct.Struct("<iQQQ")  # version, offset of level 0, capacity, elements
_DELETED = 2  # the byte of a block that says so

Embedding = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a collection's configuration says of its graph's files."""

    dimension: int
    max_neighbors: int
    normalized: bool


def stored_embeddings(
    folder: Path, shape: Shape, logged: Callable[[], Sequence[tuple[str, Embedding | None]]]
) -> dict[str, Embedding]:
    """Return the embeddings of a graph by id; none where the files cannot tell them.

    Those that were written after the graph was last persisted whole are not to be trusted, and not
    needed: they are in the log.

    Args:
        folder: The graph's.
        shape: Its configuration.
        logged: Returns all ids of the collection in the order in which they were added, each with
            its embedding if the log has it.
    """
    try:
        blocks = np.fromfile(folder / BLOCKS, dtype=np.uint8)
        lengths = np.fromfile(folder / LENGTHS, dtype=np.float32)
        added, labels = _id_map(folder) or (_elements(folder), None)
    except OSError:
        return {}
    start = 4 + 8 * shape.max_neighbors
    size = start + 4 * shape.dimension + 8
    rows = min(added, len(blocks) // size, len(lengths) if shape.normalized else added)
    blocks = blocks[: rows * size].reshape(rows, size)
    embeddings = blocks[:, start:-8].copy().view(np.float32)
    if shape.normalized:
        embeddings *= lengths[:rows, None]
    named = blocks[:, -8:].copy().view("<u8")[:, 0]
    if labels is None:
        living = np.flatnonzero(blocks[:, _DELETED] & 1 == 0)
        in_order = living[np.argsort(named[living])]
        return _named_in_order(embeddings[in_order], logged())
    places = {int(label): place for place, label in enumerate(named)}
    return {i: embeddings[places[label]] for i, label in labels.items() if label in places}


def _id_map(folder: Path) -> tuple[int, dict[str, int]] | None:
    """Return how many elements were ever added, and the label of each id; None if it is torn."""
    try:
        found = _dictionary((folder / ID_MAP).read_bytes())
        labels = {str(row_id): int(label) for row_id, label in found["id_to_label"].items()}
        return int(found["total_elements_added"]), labels
    except Exception:  # noqa: BLE001 - a torn file may raise anything
        return None


def _dictionary(pickled: bytes) -> Any:
    """Return a pickled dictionary of dictionaries, texts and numbers, without running a pickle."""
    mark, stack = object(), list[Any]()
    for opcode, value, _ in pickletools.genops(pickled):
        if opcode.name == "EMPTY_DICT":
            stack.append({})
        elif opcode.name == "MARK":
            stack.append(mark)
        elif opcode.name == "SETITEMS":
            start = len(stack) - stack[::-1].index(mark)
            stack[start - 2].update(zip(stack[start::2], stack[start + 1 :: 2], strict=True))
            del stack[start - 1 :]
        elif opcode.name == "SETITEM":
            *stack, key, last = stack
            stack[-1][key] = last
        elif opcode.name not in {"PROTO", "STOP"}:
            stack.append(value)
    return stack[0]


def _elements(folder: Path) -> int:
    """Return how many elements the header counts."""
    header = (folder / HEADER).read_bytes()
    return int(_ELEMENTS.unpack_from(header)[3]) if len(header) >= _ELEMENTS.size else 0


def _named_in_order(
    embeddings: NDArray[np.float32], logged: Sequence[tuple[str, Embedding | None]]
) -> dict[str, Embedding]:
    """Return embeddings by id where the map is torn, which is written last: the rest is whole then.

    Chroma counts labels up as ids are added, in the one order in which its tables have them too.
    What the log has besides must agree.
    """
    if len(embeddings) != len(logged):
        return {}
    for embedding, (_, known) in zip(embeddings, logged, strict=True):
        if known is not None and not np.allclose(embedding, known, rtol=1e-5, atol=1e-6):
            return {}
    return {row_id: one for (row_id, _), one in zip(logged, embeddings, strict=True)}
