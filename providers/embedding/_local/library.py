"""Models that a library loads and runs, each loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo, TextTokenizer
from corral.api.errors import ConfigError
from corral.providers.embedding._local.embedder import LocalProvider, Served, Workers
from corral.providers.embedding._local.library_config import LibraryModel, check_folder
from corral.providers.models.loading import run_in

Model = TypeVar("Model", bound=LibraryModel)

TEXTS_PER_BATCH = 8
"""Documents per batch, of similar length."""


class LoadedModel(TextTokenizer, Protocol):
    """A loaded model. Its methods block; `documents` and `question` may run at the same time.

    Attributes:
        traits: As in `Embedder`, with the name of the `library`.
        max_tokens: Tokens of a text that the model reads, including marks.
        marks: Tokens that the model adds around a text.
    """

    traits: Mapping[str, str]
    max_tokens: int
    marks: int

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of documents, shape (n, dimension)."""

    def question(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""


class LibraryEmbedder(Embedder):
    """One model, with the library's own prefixes, pooling and normalization.

    Args:
        info: The model's description.
        model: The loaded model.
        workers: The threads to compute in.

    Raises:
        ConfigError: The embeddings have another dimension.
    """

    def __init__(self, info: ModelInfo, model: LoadedModel, workers: Workers) -> None:
        _check_dimension(info, model)
        self.info = info.model_copy(update={"max_tokens": model.max_tokens})
        self.traits = model.traits
        self.tokenizer, self.marks = model, model.marks
        self._model, self._documents, self._questions = model, workers.documents, workers.queries

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), in their order."""
        result = np.empty((len(texts), self.info.dimension), np.float32)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), TEXTS_PER_BATCH):
            places = order[start : start + TEXTS_PER_BATCH]
            batch = [texts[place] for place in places]
            result[places] = await run_in(self._documents, self._model.documents, batch)
        return result

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        return await run_in(self._questions, self._model.question, text)


def library_provider(
    provider_id: str, models: Sequence[Model], load: Callable[[Model], LoadedModel]
) -> LocalProvider[LibraryEmbedder]:
    """Return a provider of the configured models; loads nothing yet.

    Args:
        provider_id: The provider's id in the configuration.
        models: The models' settings.
        load: Loads a model; slow. Raises ConfigError or Unavailable.
    """
    return LocalProvider(provider_id, *(_served(each, load) for each in models))


def _served(source: Model, load: Callable[[Model], LoadedModel]) -> Served[LibraryEmbedder]:
    info = ModelInfo(
        model=source.model, dimension=source.dimension, unrelated_cosine=source.unrelated_cosine
    )

    def loaded(workers: Workers) -> LibraryEmbedder:
        return LibraryEmbedder(info, load(source), workers)

    return Served([info], loaded, lambda: check_folder(source))


def _check_dimension(info: ModelInfo, model: LoadedModel) -> None:
    found = model.documents(["a text"]).shape[1]
    if found != info.dimension:
        raise ConfigError(
            f"inline::{model.traits['library']}: {info.model!r} gives {found} dimensions, "
            f"expected {info.dimension}.",
            hint="Correct dimension.",
            field="dimension",
        )
