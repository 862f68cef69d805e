"""A cache of token embeddings by tenant, model and text, in the file `token_embeddings.db`.

Each number takes 8 bits: the embedding of a token is scaled by its largest number. The file can be
deleted at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.providers.base.database import Database, Schema

TokenEmbeddings = NDArray[np.float32]
"""Shape (tokens, dimension), each row of length 1."""

TABLES = Schema(
    (
        "CREATE TABLE IF NOT EXISTS token_embeddings"
        " (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE,"
        " embeddings BLOB NOT NULL) STRICT",
    )
)
FILE = "token_embeddings.db"
REMEDY = "Delete it; its embeddings are made again where they are needed."
DELETED_SHARE = 0.1
"""Share of the texts to delete, oldest first, when the file is full."""

_OLDEST = (
    "DELETE FROM token_embeddings WHERE number <= (SELECT min(number) + ? * (max(number)"
    " - min(number) + 1) FROM token_embeddings)"
)


class TokenCache:
    """The token embeddings cached in a data folder. The first call creates the file.

    Args:
        home: The data folder.
        max_bytes: Approximate maximum size of the file.
    """

    def __init__(self, home: Path, max_bytes: int) -> None:
        self._file = Database(home / FILE, TABLES, remedy=REMEDY)
        self._max_bytes = max_bytes

    async def read(self, keys: Sequence[bytes], dimension: int) -> dict[bytes, TokenEmbeddings]:
        """Return the cached embeddings by key; keys that are not cached are absent."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, embeddings FROM token_embeddings WHERE key IN ({marks})"  # noqa: S608 - marks only
        rows = await self._file.read(query, *keys)
        return {bytes(key): unpacked(bytes(blob), dimension) for key, blob in rows}

    async def write(self, made: Mapping[bytes, TokenEmbeddings]) -> None:
        """Store embeddings by key; if the file is full, delete the oldest ones."""
        rows = [(key, packed(each)) for key, each in made.items()]

        def insert(table: apsw.Connection) -> None:
            pages = int(table.pragma("page_count")) - int(table.pragma("freelist_count"))
            if pages * int(table.pragma("page_size")) > self._max_bytes:
                table.execute(_OLDEST, (DELETED_SHARE,))
            table.executemany(
                "INSERT OR IGNORE INTO token_embeddings(key, embeddings) VALUES (?, ?)", rows
            )

        await self._file.write(insert)

    async def close(self) -> None:
        """Wait for the running calls, then close the file."""
        await self._file.close()


def key_of(tenant: str, fingerprint: str, text: str) -> bytes:
    """Return the key of a text: 16 bytes."""
    whole = f"{tenant}\0{fingerprint}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).digest()[:16]


def packed(embeddings: TokenEmbeddings) -> bytes:
    """Quantize embeddings: one float32 scale per token, then one signed byte per number."""
    scales = np.maximum(np.abs(embeddings).max(axis=1, keepdims=True), 1e-12) / 127
    numbers = np.rint(embeddings / scales).astype(np.int8)
    return bytes(scales.astype("<f4").tobytes() + numbers.tobytes())


def unpacked(blob: bytes, dimension: int) -> TokenEmbeddings:
    """Return quantized embeddings as floats, shape (tokens, dimension)."""
    count = len(blob) // (4 + dimension)
    scales = np.frombuffer(blob, "<f4", count)[:, None]
    numbers = np.frombuffer(blob, np.int8, offset=4 * count).reshape(count, dimension)
    embeddings: TokenEmbeddings = numbers * scales
    return embeddings
