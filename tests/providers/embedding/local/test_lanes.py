"""Documents to a model of this process: several batches at once, each row in its own place."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import ModelInfo
from corral.providers.embedding._local.embedder import LocalEmbedder, LocalProvider, Served, Workers

LANES = 2
LONG = 600
"""Letters of a text that is a batch by itself, as two of them are too many for one."""


class Meeting:
    """A model whose lanes wait for each other; a text's embedding is its length and its letter."""

    query = passage = ""
    max_tokens = 1024
    traits: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.together = threading.Barrier(LANES, timeout=60)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return a token for each letter."""
        return [[ord(letter) for letter in text] or [0] for text in texts]

    def token_ends(self, text: str) -> list[int]:
        """Return the end of each letter."""
        return list(range(1, len(text) + 1))

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the rows, in a lane when every lane has a batch."""
        if in_lane:
            self.together.wait()
        return np.array([[len(ids), ids[0]] for ids in token_ids], np.float32)


async def test_batches_of_one_call_are_computed_at_once() -> None:
    """Four batches and two lanes: two at a time, and each text gets its own embedding.

    If this fails: half of the processors idle while documents go in, or rows are mixed up.
    """
    info = ModelInfo(model="meeting", dimension=2)

    def load(workers: Workers) -> LocalEmbedder:
        return LocalEmbedder(info, Meeting(), workers)

    provider = LocalProvider("local", Served([info], load, lambda: None), lanes=LANES)
    try:
        embedder = await provider.embedder("meeting")
        texts = [letter * (LONG + n) for n, letter in enumerate("dacb")]
        rows = await embedder.embed_documents(texts)
    finally:
        await provider.close()
    assert rows.tolist() == [[LONG + n, ord(letter)] for n, letter in enumerate("dacb")]
