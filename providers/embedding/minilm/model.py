"""The model all-MiniLM-L6-v2: from texts to token ids, and from these to embeddings. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corral.api.wire import encodable
from corral.providers.embedding._local.graph_cache import cached_graph
from corral.providers.embedding._local.onnx_graph import EMBEDDING, IDS, MASK, BertGraph
from corral.providers.embedding._local.precision import Precision, at_precision, trait
from corral.providers.embedding._local.session import Session, padded
from corral.providers.embedding._local.whole_texts import WholeTexts
from corral.providers.embedding.minilm.weights import (
    DIMENSION,
    MAX_TOKENS,
    SHA256,
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    read_tokenizer,
    read_weights,
)

# Sizes from the model's config.
LAYERS = 6
HEADS = 12
EPSILON = 1e-12


class Model(WholeTexts):
    """The loaded model. Its methods may run in several threads at once.

    Args:
        folder: Folder with `model.safetensors` and `tokenizer.json`.
        home: The data folder, for the cached graph.
        threads: Threads of one computation, including the calling thread.
        precision: Precision of the matrix products.

    Raises:
        ConfigError: A file has another digest than the official one.
    """

    traits: Mapping[str, str] = MappingProxyType(
        {"weights": SHA256[WEIGHTS_NAME], "tokenizer": SHA256[TOKENIZER_NAME], "pooling": "mean"}
    )
    query = passage = ""
    max_tokens = MAX_TOKENS

    def __init__(self, folder: Path, home: Path, threads: int, precision: Precision) -> None:
        # Vector DBs registered before the setting existed have no precision in their fingerprint.
        if precision != "float32":
            self.traits = {**self.traits, "precision": trait(precision)}
        self._tokenizer = Tokenizer.from_buffer(read_tokenizer(folder))
        self._tokenizer.no_padding()  # By default, the file pads and truncates to 128.
        self._tokenizer.enable_truncation(MAX_TOKENS)
        super().__init__(self._tokenizer)
        weights = at_precision(precision, read_weights(folder))
        digest = f"{SHA256[WEIGHTS_NAME]} {precision}"
        graph = cached_graph(home, "minilm", digest, lambda: build_graph(weights))
        self._session = Session(graph, weights, threads)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text: 2 to 256, including the marks at both ends."""
        clean = [encodable(text) for text in texts]
        # The batch call, even for one text, because it releases the interpreter lock.
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(clean)]

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of a batch, shape (n, 384), L2 norm 1; use one thread in a lane.

        Rows are padded to the longest, so all of them take as long as the longest.
        """
        ids, mask = padded(token_ids)
        feed = {IDS: ids, MASK: mask.astype(np.int32)}
        return self._session.run(EMBEDDING, feed, one_thread=in_lane)


def build_graph(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the serialized graph, from token ids to embeddings."""
    graph = BertGraph(weights, heads=HEADS, epsilon=EPSILON)
    hidden = graph.embed_ids()
    for layer in range(LAYERS):
        hidden = graph.layer(f"encoder.layer.{layer}.", hidden)
    graph.mean_pooling(hidden)
    return graph.serialized("all-MiniLM-L6-v2", DIMENSION, from_ids=True)
