"""A late-interaction model, which computes an embedding for each token. Blocking.

Texts are scored as in ColBERT (Khattab and Zaharia, SIGIR 2020): for each token of the question,
take the largest cosine with a token of the text. The score is the mean of these maxima in place of
their sum, so it is a cosine as well, however long the question is.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.session import padded
from corral.providers.models.hub import digest_of
from corral.providers.models.onnx import (
    TOKENIZER,
    graph_file,
    max_tokens_of,
    run,
    session_of,
    tokenizer_of,
)
from corral.providers.rerank.colbert.cache import TokenEmbeddings
from corral.providers.rerank.colbert.config import ColbertModel

MARKS = 3
"""Number of special tokens of a text: the first, the mark and the last."""


class Model:
    """The loaded model. Its methods may run in several threads at once.

    Args:
        model: The settings of the model.
        folder: The folder with its files.
        threads: Threads per computation, including the calling one.

    Raises:
        ConfigError: A file is not a tokenizer or a graph, the tokenizer lacks a mark, or the graph
            does not return an embedding for each token.
    """

    def __init__(self, model: ColbertModel, folder: Path, threads: int) -> None:
        self._tokenizer = tokenizer_of(folder)
        self._tokenizer.no_padding()
        longest = max_tokens_of(model, folder)
        self._tokenizer.enable_truncation(longest - MARKS)
        self._first, self._last, self._mask = map(self._token, ("[CLS]", "[SEP]", "[MASK]"))
        self._query_mark = self._token(model.query_mark)
        self._document_mark = self._token(model.document_mark)
        self._query_tokens = min(model.query_tokens, longest)
        marks = map(self._tokenizer.token_to_id, string.punctuation)
        self._punctuation = np.array([mark for mark in marks if mark is not None])
        self._session = session_of(graph_file(model, folder), threads)
        self._output = self._session.get_outputs()[0].name
        settings = (longest, model.query_mark, model.document_mark, model.query_tokens)
        files = digest_of(graph_file(model, folder)), digest_of(folder / TOKENIZER)
        self.fingerprint = "\0".join(map(str, (*files, *settings)))
        """Identifies the embeddings: models with the same fingerprint compute the same ones."""
        states = self._states([[self._first, self._last]], [2])
        if states.ndim != 3 or states.shape[:2] != (1, 2):
            raise ConfigError(
                f"inline::colbert: {model.model!r} gives no embedding for each token.", field="file"
            )
        self.dimension: int = states.shape[-1]

    def embed_query(self, query: str) -> TokenEmbeddings:
        """Return the embeddings of a question's tokens and of the mask tokens that pad it."""
        ids = [self._first, self._query_mark, *self._ids([query])[0], self._last]
        masks = max(0, self._query_tokens - len(ids))
        # Mask tokens act as query expansion: they attend to the question, but it does not attend
        # to them.
        return _unit(self._states([ids + [self._mask] * masks], [len(ids)])[0])

    def embed_documents(self, texts: Sequence[str]) -> list[TokenEmbeddings]:
        """Return the embeddings of each text's tokens, without punctuation."""
        rows = [[self._first, self._document_mark, *ids, self._last] for ids in self._ids(texts)]
        states = self._states(rows, [len(row) for row in rows])
        counted = [~np.isin(row, self._punctuation) for row in rows]
        return [
            _unit(each[: len(row)][keep])
            for each, row, keep in zip(states, rows, counted, strict=True)
        ]

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, after truncation."""
        return [len(ids) for ids in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [encodable(text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _states(self, rows: Sequence[Sequence[int]], visible: Sequence[int]) -> NDArray[np.float32]:
        """Return the states of a batch, shape (rows, tokens, dimension).

        Args:
            rows: Token ids of each row.
            visible: For each row, the number of tokens at its beginning that all tokens attend to.
        """
        ids, _ = padded(rows)
        mask = np.arange(ids.shape[1]) < np.array(visible)[:, None]
        return run(self._session, self._output, ids, mask)

    def _token(self, text: str) -> int:
        token: int | None = self._tokenizer.token_to_id(text)
        if token is None:
            raise ConfigError(f"inline::colbert: the tokenizer has no token {text!r}.")
        return token


def score(query: TokenEmbeddings, text: TokenEmbeddings) -> float:
    """Return the mean, over the question's tokens, of the largest cosine with a token of a text."""
    return float((query @ text.T).max(axis=1).mean())


def _unit(states: NDArray[np.float32]) -> TokenEmbeddings:
    lengths = np.linalg.norm(states, axis=1, keepdims=True)
    unit: TokenEmbeddings = states / np.maximum(lengths, 1e-12)
    return unit
