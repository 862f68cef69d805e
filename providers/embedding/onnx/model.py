"""A sentence model in ONNX format: from texts to token ids to embeddings. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.session import padded
from corral.providers.embedding._local.whole_texts import WholeTexts
from corral.providers.embedding.onnx.config import OnnxModel
from corral.providers.embedding.onnx.files import pooling_of, prefixes_of
from corral.providers.models.hub import digest_of
from corral.providers.models.onnx import (
    TOKENIZER,
    graph_file,
    max_tokens_of,
    run,
    session_of,
    tokenizer_of,
)

SENTENCE = ("sentence_embedding", "embedding", "text_embeds")
"""Names of outputs that are already embeddings."""


class Model(WholeTexts):
    """The loaded model. Its methods may run in several threads at once.

    Args:
        model: The model's settings.
        folder: Folder with the model's files.
        dimension: Required dimension of the embeddings.
        threads: Threads of one computation, including the calling thread.

    Raises:
        ConfigError: A file is not a valid tokenizer or graph, or the graph's output has another
            dimension.
    """

    def __init__(self, model: OnnxModel, folder: Path, dimension: int, threads: int) -> None:
        self.query, self.passage = prefixes_of(model, folder)
        self.max_tokens = max_tokens_of(model, folder)
        self._tokenizer = tokenizer_of(folder)
        super().__init__(self._tokenizer)
        self._filler = (self._tokenizer.padding or {}).get("pad_id", 0)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        self._session = session_of(graph_file(model, folder), threads)
        outputs = [output.name for output in self._session.get_outputs()]
        self._output = next((name for name in SENTENCE if name in outputs), outputs[0])
        [shape] = [o.shape for o in self._session.get_outputs() if o.name == self._output]
        self._pooling = pooling_of(model, folder) if len(shape) == 3 else None
        self.traits: Mapping[str, str] = {
            "weights": digest_of(graph_file(model, folder)),
            "tokenizer": digest_of(folder / TOKENIZER),
            "pooling": self._pooling or "",
            "query": self.query,
            "passage": self.passage,
        }
        found = self.embed(self.tokenize(["a text"])).shape[-1]
        if found != dimension:
            raise ConfigError(
                f"inline::onnx: {model.model!r} gives {found} dimensions, expected {dimension}.",
                hint="Correct dimension, or file.",
                field="dimension",
            )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, including marks, truncated to the model's maximum."""
        encodings = self._tokenizer.encode_batch_fast([encodable(text) for text in texts])
        # Some models add no marks, so an empty text has no tokens.
        return [encoding.ids or [self._filler] for encoding in encodings]

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of a batch, shape (n, dimension), L2 norm 1.

        There is one lane, because a second copy of a large model costs memory.
        """
        ids, mask = padded(token_ids, self._filler)
        found = run(self._session, self._output, ids, mask)
        rows = found if self._pooling is None else _pooled(found, mask, self._pooling)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
        return unit


def _pooled(
    states: NDArray[np.float32], mask: NDArray[np.bool_], pooling: str
) -> NDArray[np.float32]:
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        last: NDArray[np.float32] = states[np.arange(len(states)), mask.sum(axis=1) - 1]
        return last
    weights = mask[..., None].astype(np.float32)
    found: NDArray[np.float32] = (states * weights).sum(axis=1) / weights.sum(axis=1)
    return found
