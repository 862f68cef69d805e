"""The interface of a loaded model, and the batches of its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import TextTokenizer

TOKENS_PER_BATCH = 384
"""Maximum tokens of a batch, including padding. The output of a layer then fits a 2 MB processor
cache: batches of 1024 tokens take a fifth more processor time per token with e5 and a tenth more
with MiniLM, and batches of 128 are slower too (texts of 20 to 256 tokens, one thread). Small
batches also delay questions less, and the last batches end closer together."""

PADDING = 16
"""Padding tokens that take as long as one more batch (measured: 8 for e5, 25 for MiniLM)."""


class LocalModel(TextTokenizer, Protocol):
    """A loaded model. Its methods block, and may run in several threads at once.

    Attributes:
        traits: As in `Embedder`.
        query, passage: Prefixes of a question and of a document.
        max_tokens: Tokens of a text that the model reads, including marks and prefix.
    """

    traits: Mapping[str, str]
    query: str
    passage: str
    max_tokens: int

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, including marks, truncated to the model's maximum."""

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of a batch, shape (n, dimension).

        Args:
            in_lane: True if other lanes of the provider are computing other batches.
        """


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of similar length, the shortest first.

    Args:
        lengths: Tokens of each text. The padded size of a batch is at most `TOKENS_PER_BATCH`,
            unless a single text is longer. Texts of different lengths share a batch if padding
            costs less than another batch.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch:
            padding = len(batch) * (lengths[index] - lengths[batch[-1]])
            if padding > PADDING or (len(batch) + 1) * lengths[index] > TOKENS_PER_BATCH:
                yield batch
                batch = []
        batch.append(index)
    if batch:
        yield batch
