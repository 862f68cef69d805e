"""The model multilingual-e5-small: from texts to token ids to embeddings. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding._local.graph_cache import cached_graph
from corral.providers.embedding._local.onnx_graph import (
    EMBEDDING,
    MASK,
    TOKENS,
    WEIGHTS,
    BertGraph,
)
from corral.providers.embedding._local.precision import Precision, at_precision, trait
from corral.providers.embedding._local.session import Session, padded
from corral.providers.embedding.e5.center import SHARE, common_vector, without_common_part
from corral.providers.embedding.e5.token_weights import COMMON, token_weights
from corral.providers.embedding.e5.tokenizer import BEGIN, END, MARKS, PAD, UnigramTokenizer
from corral.providers.embedding.e5.weights import (
    DIMENSION,
    EPSILON,
    HEADS,
    LAYERS,
    MAX_TOKENS,
    SHA256,
    read_model,
    rows,
)


class Model:
    """The loaded model. Its methods may run in several threads at once.

    Args:
        path: Path of the model's file.
        home: The data folder, for the cached graph.
        threads: Threads of one computation, including the calling thread.
        precision: Precision of the matrix products.
        centered: True to weight rare tokens more and subtract the common component of all
            embeddings.

    Raises:
        ConfigError: The file has another digest.
    """

    query, passage = "query: ", "passage: "
    traits: Mapping[str, str] = MappingProxyType(
        {"weights": SHA256, "pooling": "mean", "query": query, "passage": passage}
    )
    max_tokens = MAX_TOKENS

    def __init__(
        self, path: Path, home: Path, threads: int, precision: Precision, *, centered: bool
    ) -> None:
        self.traits = {**self.traits, "precision": trait(precision)}
        file = read_model(path)
        self._token_weights = np.ones(len(file.scores), np.float32)
        self._common: NDArray[np.float32] | None = None
        if centered:
            self._token_weights = token_weights(file.scores, len(MARKS))
            self._common = common_vector()
            digest = sha256(self._common.tobytes()).hexdigest()
            self.traits = {
                **self.traits,
                "pooling": f"mean, each token by {COMMON} / ({COMMON} + p)",
                "centered": f"{SHARE} of {digest[:12]}",
            }
        self._words, self._positions = file.words, file.positions
        self._tokenizer = UnigramTokenizer(file.pieces, file.scores, file.characters)
        weights = at_precision(precision, file.weights)
        digest = f"{SHA256} {precision}"
        graph = cached_graph(home, "e5", digest, lambda: build_graph(weights))
        self._session = Session(graph, weights, threads)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text: 2 to 512, including the marks at both ends."""
        most = self.max_tokens - 2
        return [[BEGIN, *ids[:most], END] for ids in self._tokenizer.ids(texts)]

    def token_ends(self, text: str) -> list[int]:
        """Return the end offset of each token of the whole text, without the marks."""
        return self._tokenizer.ends(text)

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of a batch, shape (n, 384), L2 norm 1; use one thread in a lane.

        Rows are padded to the longest, so all of them take as long as the longest.
        """
        embeddings = self.mean(token_ids, in_lane=in_lane)
        return embeddings if self._common is None else without_common_part(embeddings, self._common)

    def mean(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings like `embed`, but with their common component."""
        ids, mask = padded(token_ids, PAD)
        states = rows(self._words, ids) + self._positions[: ids.shape[1]]
        feed = {TOKENS: states, WEIGHTS: self._token_weights[ids] * mask}
        feed[MASK] = mask.astype(np.int32)
        return self._session.run(EMBEDDING, feed, one_thread=in_lane)


def build_graph(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the serialized graph, from the sum of token and position to embeddings."""
    graph = BertGraph(weights, heads=HEADS, epsilon=EPSILON)
    hidden = graph.normalize_tokens()
    for layer in range(LAYERS):
        hidden = graph.layer(f"encoder.layer.{layer}.", hidden)
    graph.weighted_pooling(hidden)
    return graph.serialized("multilingual-e5-small", DIMENSION, from_ids=False)
