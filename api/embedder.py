"""Embedders: text in, embeddings out."""

from __future__ import annotations

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

READ_CHARACTERS = 1000
"""Of a text, from its beginning, that `read_share` looks at."""
WELL_READ, WELL_READ_CASELESS = 0.87, 0.6
"""Shares of a text's letters that a model keeps in parts of words if it knows the language, in
scripts with and without case: English under MiniLM, Chinese under multilingual-e5-small."""


class ModelInfo(BaseModel):
    """An embedding model that a provider serves.

    Attributes:
        model: Its name, as a vector DB registers it.
        dimension: Numbers in an embedding.
        max_tokens: Tokens of a text that the model reads; the rest is cut off. None: unknown.
        unrelated_cosine: What texts that have nothing to do with each other have, in [-0.99, 0.99];
            confidence counts from it. Some models put all texts close together.
    """

    model: str
    dimension: int
    max_tokens: int | None = None
    unrelated_cosine: float = 0.0


class TextTokenizer(Protocol):
    """How a model counts text. Safe to use from many threads at once."""

    def token_ends(self, text: str) -> Sequence[int]:
        """Return where each token of a text ends, in characters of the text, never decreasing.

        All of the text is read, however long. Marks that the model puts around a text are no
        tokens of it. A lone surrogate counts as one character.
        """


def read_share(tokenizer: TextTokenizer, text: str) -> float:
    """Return how much of a text a model reads: in [0, 1]; 1 in a language that it knows.

    A tokenizer keeps what its model has often seen in long pieces and cuts the rest into letters,
    so that a model without Chinese has no Chinese word. What counts is in a piece of three letters
    or digits, or of two letters of a script without case, where a letter says more. A piece that
    stays whole when it is written twice is no entry of a vocabulary: it is an unknown word.

    Returns:
        The share of letters and digits that count, as a share of what counts in a text that a model
        reads well. 1 for a text without any.
    """
    text = text[:READ_CHARACTERS]
    ends = tokenizer.token_ends(text)
    parts = [text[start:end].strip() for start, end in pairwise([0, *ends])]
    known = _known(
        tokenizer, [part for part in parts if _letters(part) >= 3 or _caseless(part) >= 2]
    )
    caseless = _caseless(text)
    well_read = WELL_READ * (_letters(text) - caseless) + WELL_READ_CASELESS * caseless
    return min(1.0, sum(map(_letters, known)) / well_read) if well_read else 1.0


def _known(tokenizer: TextTokenizer, parts: Sequence[str]) -> list[str]:
    """Return the parts that a tokenizer divides when each is written twice."""
    ends = set(tokenizer.token_ends(" ".join(part * 2 for part in parts)))
    known, start = [], 0
    for part in parts:
        size = 2 * len(part)
        if not ends.isdisjoint(range(start + 1, start + size)):
            known.append(part)
        start += size + 1
    return known


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _caseless(text: str) -> int:
    return sum(unicodedata.category(character) == "Lo" for character in text)


class Embedder(ABC):
    """One embedding model. Safe to call from many tasks at once.

    Attributes:
        info: The model.
        marks: Tokens that the model puts around each text; they count for `info.max_tokens`.
        tokenizer: The model's own, which a RAG query can name to count its budget (`embedder`).
            None where it is not known here, as with a model behind an HTTP API.
        traits: What decides on the embeddings beside the model's name and dimension, as far as it
            is known here: digests of weights, pooling, prefixes. Empty values do not count.
    """

    info: ModelInfo
    tokenizer: TextTokenizer | None = None
    marks: int = 0
    traits: Mapping[str, str] = MappingProxyType({})

    @property
    def fingerprint(self) -> str:
        """What decides on the embeddings, as JSON: equal texts mean embeddings that compare."""
        known = {name: value for name, value in self.traits.items() if value}
        parts = {"model": self.info.model, "dimension": self.info.dimension, **known}
        return json.dumps(parts, sort_keys=True, ensure_ascii=False)

    @property
    def window(self) -> int | None:
        """Tokens of a text that the model reads, its marks left out; None: unknown."""
        return None if self.info.max_tokens is None else self.info.max_tokens - self.marks

    def reads(self, text: str) -> float:
        """Return how much of a text the model reads, as `read_share` says; 1 if unknown."""
        return 1.0 if self.tokenizer is None else read_share(self.tokenizer, text)

    @abstractmethod
    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts to be stored, shape (n, dimension), in their order.

        An empty text is allowed and gets some finite embedding. Batching is the embedder's matter.

        Raises:
            Unavailable, ProviderTimeout: A remote model cannot be reached, or not in time.
            ProviderError: It answered with something else than embeddings.
        """

    @abstractmethod
    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,); errors as above."""
