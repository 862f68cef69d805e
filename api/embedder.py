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
"""Number of characters, from the start of a text, that `read_share` examines."""
WELL_READ, WELL_READ_CASELESS = 0.87, 0.6
"""Shares of a text's letters in long tokens, if the model knows the language, in scripts with and
without case. Measured: English under MiniLM, Chinese under multilingual-e5-small."""


class ModelInfo(BaseModel):
    """An embedding model that a provider serves.

    Attributes:
        model: Its name, as a vector DB registers it.
        dimension: Length of an embedding.
        max_tokens: Tokens of a text that the model reads; the rest is cut off. None: unknown.
        unrelated_cosine: Cosine of unrelated texts, in [-0.99, 0.99], the zero point of
            confidence. Some models put all texts close together.
    """

    model: str
    dimension: int
    max_tokens: int | None = None
    unrelated_cosine: float = 0.0


class TextTokenizer(Protocol):
    """A model's tokenizer. Safe to use from many threads at once."""

    def token_ends(self, text: str) -> Sequence[int]:
        """Return the end offset of each token, in characters of the text, never decreasing.

        The whole text is tokenized, whatever its length. The special tokens that the model adds
        around a text are not included. A lone surrogate counts as one character.
        """


def read_share(tokenizer: TextTokenizer, text: str) -> float:
    """Estimate the share of a text that a model can read, in [0, 1]; 1 in a language it knows.

    A tokenizer keeps frequent words in long tokens and cuts the rest into letters: the tokenizer
    of a model without Chinese has no Chinese word. A letter or digit counts if its token has at
    least three of them, or two letters of a script without case, which carry more information. A
    token that stays whole when it is written twice is not a vocabulary entry but an
    unknown word, and does not count.

    Returns:
        The share of letters and digits that count, divided by the share in a text that a model
        reads well (`WELL_READ`). 1 for a text without letters and digits.
    """
    text = text[:READ_CHARACTERS]
    ends = tokenizer.token_ends(text)
    parts = [text[start:end].strip() for start, end in pairwise([0, *ends])]
    divided = _known(
        tokenizer, [part for part in parts if _letters(part) >= 3 or _caseless(part) >= 2]
    )
    caseless = _caseless(text)
    well_read = WELL_READ * (_letters(text) - caseless) + WELL_READ_CASELESS * caseless
    return min(1.0, sum(map(_letters, divided)) / well_read) if well_read else 1.0


def _known(tokenizer: TextTokenizer, parts: Sequence[str]) -> list[str]:
    """Return the parts that a tokenizer divides when each is written twice."""
    ends = set(tokenizer.token_ends(" ".join(part * 2 for part in parts)))
    divided, start = [], 0
    for part in parts:
        size = 2 * len(part)
        if not ends.isdisjoint(range(start + 1, start + size)):
            divided.append(part)
        start += size + 1
    return divided


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _caseless(text: str) -> int:
    return sum(unicodedata.category(character) == "Lo" for character in text)


class Embedder(ABC):
    """One embedding model. Safe to call from many tasks at once.

    Attributes:
        info: The model's name, dimension and limits.
        marks: Special tokens that the model adds to each text; they count for `info.max_tokens`.
        tokenizer: The model's tokenizer, which a RAG query can name to count its budget
            (`embedder`). None if unknown, as for a model behind an HTTP API.
        traits: Further properties that determine the embeddings, as far as they are known: digests
            of weights, pooling, prefixes. Empty values are ignored.
    """

    info: ModelInfo
    tokenizer: TextTokenizer | None = None
    marks: int = 0
    traits: Mapping[str, str] = MappingProxyType({})

    @property
    def fingerprint(self) -> str:
        """Identity of the embeddings, as JSON; equal fingerprints mean comparable embeddings."""
        traits = {name: value for name, value in self.traits.items() if value}
        parts = {"model": self.info.model, "dimension": self.info.dimension, **traits}
        return json.dumps(parts, sort_keys=True, ensure_ascii=False)

    @property
    def window(self) -> int | None:
        """Tokens of a text that the model reads, without its special tokens; None: unknown."""
        return None if self.info.max_tokens is None else self.info.max_tokens - self.marks

    def reads(self, text: str) -> float:
        """Return the share of a text that the model can read (`read_share`); 1 if unknown."""
        return 1.0 if self.tokenizer is None else read_share(self.tokenizer, text)

    @abstractmethod
    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts to store, shape (n, dimension), in the order of the texts.

        An empty text is allowed and gets some finite embedding. The embedder does the batching.

        Raises:
            Unavailable, ProviderTimeout: A remote model cannot be reached, or is too slow.
            ProviderError: The answer does not consist of embeddings.
        """

    @abstractmethod
    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,); errors as above."""
