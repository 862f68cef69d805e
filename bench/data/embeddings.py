"""Embeddings kept between runs, by model and text, in one SQLite file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder

Kind = Literal["document", "query"]
Advance = Callable[[int], None]

CACHE_NAME = "embeddings.db"
BATCH = 64
"""Texts that are embedded before they are kept: what an interruption loses at most."""
_ASKED_AT_ONCE = 500


class EmbeddingCache:
    """Embeddings by (fingerprint of the model, kind, text); every batch is kept in one transaction.

    Only hashes of texts are stored. Several processes may use one file.

    Args:
        path: The file; made with its folder where it is absent.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(60_000)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"
            " STRICT, WITHOUT ROWID"
        )

    def missing(self, embedder: Embedder, kind: Kind, texts: Sequence[str]) -> int:
        """Return how many different texts have no embedding yet."""
        keys = {_key(embedder, kind, text) for text in texts}
        return len(keys) - len(self._find(list(keys)))

    async def embed(
        self, embedder: Embedder, kind: Kind, texts: Sequence[str], advance: Advance | None = None
    ) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), length 1, kept or new.

        Args:
            embedder: The model; asked for what is missing only.
            kind: Models may embed questions in another way than documents.
            texts: Equal ones are embedded once.
            advance: Called with the number of texts that were embedded, batch by batch.

        Raises:
            CorralError: The model failed; what was embedded before is kept.
        """
        keys = [_key(embedder, kind, text) for text in texts]
        found = self._find(keys)
        absent = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        waiting = list(absent.items())
        for start in range(0, len(waiting), BATCH):
            part = waiting[start : start + BATCH]
            made = await _embed(embedder, kind, [text for _, text in part])
            new = {key: row for (key, _), row in zip(part, made, strict=True)}
            self._keep(new)
            found |= new
            if advance is not None:
                advance(len(part))
        if not texts:
            return np.empty((0, embedder.info.dimension), np.float32)
        return _normalized(np.stack([found[key] for key in keys]))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        found: dict[bytes, NDArray[np.float32]] = {}
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            part = keys[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, vector FROM embeddings WHERE key IN ({marks})"
            for key, vector in self._connection.execute(query, tuple(part)):
                found[bytes(key)] = np.frombuffer(vector, np.float32)
        return found

    def _keep(self, new: dict[bytes, NDArray[np.float32]]) -> None:
        rows = [(key, np.ascontiguousarray(row, np.float32).tobytes()) for key, row in new.items()]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)


async def _embed(embedder: Embedder, kind: Kind, texts: list[str]) -> NDArray[np.float32]:
    if kind == "document":
        return await embedder.embed_documents(texts)
    return np.stack([await embedder.embed_query(text) for text in texts])


def _key(embedder: Embedder, kind: Kind, text: str) -> bytes:
    whole = "\0".join([embedder.fingerprint, kind, text])
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()


def _normalized(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(lengths > 0, lengths, 1), dtype=np.float32)
