"""A cache of embeddings by tenant, model and text, in the file `embeddings.db`.

If a document is changed, moved or interrupted, only its new passages are embedded. The cache can be
deleted at any time. Tenants do not share entries, so the duration of an insert does not reveal the
texts of another tenant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder
from corral.api.errors import ContractViolation
from corral.api.spans import Attributes, span
from corral.providers.base.database import Database, Schema

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS embeddings"
    " (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE,"
    " embedding BLOB NOT NULL) STRICT",
)
TABLES = Schema(SCHEMA)
REMEDY = "Delete it; its embeddings are made again where they are needed."

MIB = 1024 * 1024
ROW_BYTES = 80
"""Approximate size of a row without its embedding."""


class EmbeddingCache:
    """The embeddings cached in a data folder. The first call creates the file.

    Args:
        home: The data folder.
        max_mib: Approximate maximum size in MiB, above which the oldest embeddings are deleted. 0
            disables the cache.
    """

    def __init__(self, home: Path, max_mib: float) -> None:
        self._file = Database(home / "embeddings.db", TABLES, remedy=REMEDY)
        self._max_bytes = max_mib * MIB
        self.made = 0
        """Number of embeddings computed because they were not cached."""

    async def embed(
        self, embedder: Embedder, tenant: str, texts: Sequence[str]
    ) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (len(texts), dimension), and cache new ones.

        Raises:
            ContractViolation: The embedder returned another shape.
            ProviderError: The embedder failed, or the file cannot be read or written.
        """
        if not self._max_bytes or not texts:
            return await made_by(embedder, texts)
        with span("embed_documents", provider=embedder.info.model, texts=len(texts)) as seen:
            return await self._embed(embedder, tenant, texts, seen)

    async def _embed(
        self, embedder: Embedder, tenant: str, texts: Sequence[str], seen: Attributes
    ) -> NDArray[np.float32]:
        keys = _keys(tenant, embedder.fingerprint, texts)
        known = await self._known(keys, embedder.info.dimension)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        seen |= {"cache_hits": len(texts) - len(missing), "cache_misses": len(missing)}
        if missing:
            made = await made_by(embedder, list(missing.values()))
            self.made += len(missing)
            known |= dict(zip(missing, made, strict=True))
            await self._remember(missing.keys(), made)
        return np.stack([known[key] for key in keys])

    async def close(self) -> None:
        """Wait for the running calls, then close the file."""
        await self._file.close()

    async def _known(
        self, keys: Sequence[bytes], dimension: int
    ) -> dict[bytes, NDArray[np.float32]]:
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, embedding FROM embeddings WHERE key IN ({marks})"  # noqa: S608 - marks only
        rows = await self._file.read(query, *keys)
        found = {bytes(key): np.frombuffer(value, "<f4") for key, value in rows}
        return {key: row.astype(np.float32) for key, row in found.items() if len(row) == dimension}

    async def _remember(self, keys: Collection[bytes], made: NDArray[np.float32]) -> None:
        rows = [(key, row.astype("<f4").tobytes()) for key, row in zip(keys, made, strict=True)]
        most = int(self._max_bytes / (made.shape[1] * 4 + ROW_BYTES))

        def insert(table: apsw.Connection) -> None:
            table.executemany(
                "INSERT OR IGNORE INTO embeddings(key, embedding) VALUES (?, ?)", rows
            )
            oldest = "(SELECT max(number) FROM embeddings) - ?"
            table.execute(f"DELETE FROM embeddings WHERE number <= {oldest}", (most,))  # noqa: S608

        await self._file.write(insert)


async def made_by(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Compute the embeddings of texts without the cache; see `EmbeddingCache.embed`."""
    dimension = embedder.info.dimension
    if not texts:
        return np.empty((0, dimension), np.float32)
    made = await embedder.embed_documents(texts)
    if made.shape != (len(texts), dimension):
        raise ContractViolation(
            f"{embedder.info.model} returned embeddings of shape {made.shape} where "
            f"{(len(texts), dimension)} was expected."
        )
    return made


def _keys(tenant: str, fingerprint: str, texts: Sequence[str]) -> list[bytes]:
    said = (f"{tenant}\0{fingerprint}\0{text}" for text in texts)
    return [hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:16] for key in said]
