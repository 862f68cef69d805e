"""The interface of a loaded model, and the batches of its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import TextTokenizer

TOKENS_PER_BATCH = 384
"""Maximum tokens of a batch, padding included. The output of a layer then fits into the processor's
2 MB cache: with e5, batches of 1024 tokens take a fifth more processor time per token, with MiniLM
a tenth, and batches of 128 are slower, too (texts of 20 to 256 tokens, one thread). A small batch
also delays later questions less, and the last batches end closer together."""

PADDING = 16
"""Tokens of padding that take as long as a batch more (measured: 8 for e5, 25 for MiniLM)."""


class LocalModel(TextTokenizer, Protocol):
    """A loaded model. Its methods block, and may run in several threads at once.

    Attributes:
        traits: As of `Embedder`.
        query, passage: Prefixes of a question and of a document.
        max_tokens: Tokens of a text that it reads, marks and prefix included.
    """

    traits: Mapping[str, str]
    query: str
    passage: str
    max_tokens: int

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, marks included, cut at what the model reads."""

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of a batch, shape (n, dimension).

        Args:
            in_lane: Pass True while other lanes of its provider compute other batches.
        """


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of similar length, the shortest first.

    Args:
        lengths: Tokens of each text. A batch times its longest text is at most
            `TOKENS_PER_BATCH`, except where one text alone is longer. A text is in a batch with
            shorter ones where padding those costs less than another batch.
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
