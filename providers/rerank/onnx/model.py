"""A cross-encoder in ONNX format: it returns a number for a question and a text. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.session import padded
from corral.providers.models.onnx import (
    graph_file,
    max_tokens_of,
    run,
    session_of,
    tokenizer_of,
)
from corral.providers.rerank.onnx.config import CrossEncoder


class Model:
    """The loaded model. Its methods may run in several threads at once.

    Args:
        model: The settings of the model.
        folder: The folder with its files.
        threads: Threads per computation, including the calling one.

    Raises:
        ConfigError: A file is not a tokenizer or a graph, or the graph does not return a single
            number per text.
    """

    def __init__(self, model: CrossEncoder, folder: Path, threads: int) -> None:
        self._name = model.model
        self._tokenizer, self._uncut = tokenizer_of(folder), tokenizer_of(folder)
        self._uncut.no_truncation()
        self._filler = (self._tokenizer.padding or {}).get("pad_id", 0)
        self._tokenizer.no_padding()
        self._longest = max_tokens_of(model, folder)
        # Truncate the text and not the question.
        self._tokenizer.enable_truncation(self._longest, strategy="only_second")
        self._session = session_of(graph_file(model, folder), threads)
        self._output = self._session.get_outputs()[0].name
        self.scores("a question", ["a text"])

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the model's score of each text, shape (n,); higher is better."""
        question, limit = encodable(query), self._longest // 2
        encoded = self._uncut.encode(question, add_special_tokens=False)
        if len(encoded.ids) > limit:  # Leave half of the model's input for the text.
            question = question[: encoded.offsets[limit - 1][1]]
        pairs = [(question, encodable(text)) for text in texts]
        encodings = self._tokenizer.encode_batch(pairs)
        ids, mask = padded([encoding.ids for encoding in encodings], self._filler)
        types, _ = padded([encoding.type_ids for encoding in encodings])
        scores = run(self._session, self._output, ids, mask, types).reshape(len(texts), -1)
        if scores.shape[1] != 1:
            raise ConfigError(
                f"inline::onnx-rerank: {self._name!r} gives {scores.shape[1]} numbers for a text; "
                "a re-ranking model gives one.",
                field="file",
            )
        return scores[:, 0]
