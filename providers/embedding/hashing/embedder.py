"""inline::hashing: texts that share words and letters get similar embeddings, nothing more.

Feature hashing with signs: Weinberger, Dasgupta, Langford, Smola and Attenberg, "Feature Hashing
for Large Scale Multitask Learning", ICML 2009, section 2. Each feature adds +1 or -1 at one
position, both chosen by a hash, so that inner products are preserved in expectation.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding.hashing.config import HashingConfig
from corral.providers.models.names import not_served

MODEL = "hashing"
NGRAM = 3
LONGEST_REMEMBERED = 64  # In characters; limits the memory for a blob.
_WORD = re.compile(r"\w+|[^\w\s]")  # A punctuation mark or an emoji counts as a word.


def create(provider_id: str, config: HashingConfig, home: Path) -> HashingProvider:
    """Return the provider; it stores nothing in the data folder."""
    return HashingProvider(provider_id, config)


class HashingProvider(EmbeddingProvider):
    """Serves the one model `hashing`."""

    def __init__(self, provider_id: str, config: HashingConfig) -> None:
        super().__init__(provider_id)
        self._embedder = HashingEmbedder(config.dimension)

    def models(self) -> list[ModelInfo]:
        """Return the model with its configured dimension."""
        return [self._embedder.info]

    async def embedder(self, model: str) -> HashingEmbedder:
        """Return the embedder.

        Raises:
            NotFound: The name is not `hashing`.
        """
        if model != MODEL:
            raise not_served(self.provider_id, "embedding", model, [MODEL])
        return self._embedder

    async def health(self) -> Health:
        """Return OK; nothing can fail."""
        return Health("OK")


class HashingEmbedder(Embedder):
    """Deterministic embeddings of L2 norm 1, the same in every process and on every platform.

    Case, compatibility forms and white space make no difference. The order of words does not
    count either.
    """

    def __init__(self, dimension: int) -> None:
        self.info = ModelInfo(model=MODEL, dimension=dimension)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), in their order."""
        return await asyncio.to_thread(self._embed, texts)

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        return await asyncio.to_thread(embed_text, text, self.info.dimension)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        result = np.empty((len(texts), self.info.dimension), np.float32)
        for row, text in enumerate(texts):
            result[row] = embed_text(text, self.info.dimension)
        return result


def embed_text(text: str, dimension: int) -> NDArray[np.float32]:
    """Return the embedding of a text, shape (dimension,), L2 norm 1.

    If the features cancel out, or there are none, a hash of the whole text is used instead, because
    a zero vector cannot be searched.
    """
    clean = unicodedata.normalize("NFKC", text).casefold()
    counts = np.zeros(dimension, np.float64)
    for feature in _features(clean):
        find = _remembered if len(feature) <= LONGEST_REMEMBERED else _hash
        place, sign = find(feature, dimension)
        counts[place] += sign
    if not counts.any():
        place, sign = _hash(f"\n{clean}", dimension)  # No feature begins with a line break.
        counts[place] = sign
    return (counts / np.linalg.norm(counts)).astype(np.float32)


def _features(clean: str) -> Iterator[str]:
    """Return words and their trigrams, as in fastText (Bojanowski et al. 2017, section 3.2)."""
    for word in _WORD.findall(clean):
        yield word
        padded = f"<{word}>"
        yield from (padded[i : i + NGRAM] for i in range(len(padded) - NGRAM + 1))


def _hash(feature: str, dimension: int) -> tuple[int, int]:
    # Not hash(), which differs between processes. surrogatepass: any str has a hash.
    digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return (number >> 1) % dimension, 1 if number & 1 else -1


_remembered = lru_cache(maxsize=1 << 14)(_hash)  # Most features occur in many texts.
