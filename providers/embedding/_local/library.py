"""Models that a library loads and runs itself: each loaded at its first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo, TextTokenizer
from corral.api.errors import ConfigError, NotFound
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding._local.embedder import run_in
from corral.providers.embedding._local.library_config import LibraryModel

Model = TypeVar("Model", bound=LibraryModel)

TEXTS_PER_BATCH = 8
"""Documents of one computation, of similar length."""


class LoadedModel(TextTokenizer, Protocol):
    """A loaded model. Its methods block; `documents` and `question` may run at the same time.

    Attributes:
        traits: As of `Embedder`, with the name of the `library`.
        max_tokens: Tokens of a text that it reads, marks included.
        marks: Tokens that it puts around a text.
    """

    traits: Mapping[str, str]
    max_tokens: int
    marks: int

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of documents, shape (n, dimension)."""

    def question(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""


class LibraryProvider(EmbeddingProvider, Generic[Model]):
    """Serves the models of the settings; documents and questions have a worker thread each.

    Args:
        provider_id: Its id in the configuration.
        models: From the settings.
        load: Loads one; slow. Raises ConfigError or Unavailable.
    """

    def __init__(
        self, provider_id: str, models: Sequence[Model], load: Callable[[Model], LoadedModel]
    ) -> None:
        super().__init__(provider_id)
        self._load_model = load
        self._models = {each.model: each for each in models}
        self._documents = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-documents")
        self._questions = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-queries")
        self._loaded: dict[str, LibraryEmbedder] = {}

    def models(self) -> list[ModelInfo]:
        """Return the configured models, in their order."""
        return [_info(each) for each in self._models.values()]

    async def embedder(self, model: str) -> LibraryEmbedder:
        """Return the embedder of a configured model, loading it at the first call.

        Raises:
            NotFound: It is not configured.
            ConfigError, Unavailable: It cannot be loaded, or not be fetched, or its embeddings have
                another dimension.
        """
        if model not in self._models:
            raise NotFound(
                f"{self.provider_id} does not serve the embedding model {model!r}.",
                hint=f"Known: {', '.join(self._models)}.",
            )
        if model not in self._loaded:
            return await run_in(self._documents, self._load, self._models[model])
        return self._loaded[model]

    async def health(self) -> Health:
        """Return OK if the folders of the models are there."""
        for each in self._models.values():
            if each.path is not None and not each.path.is_dir():
                return Health("Error", f"The folder of {each.model!r} is missing.")
        return Health("OK")

    async def close(self) -> None:
        """Stop the worker threads; work that has not begun is cancelled."""
        self._documents.shutdown(wait=False, cancel_futures=True)
        self._questions.shutdown(wait=False, cancel_futures=True)

    def _load(self, source: Model) -> LibraryEmbedder:
        # Runs in the one thread for documents: callers at the same time load once.
        if source.model not in self._loaded:
            model = self._load_model(source)
            _check_dimension(source, model)
            made = LibraryEmbedder(source, model, self._documents, self._questions)
            self._loaded[source.model] = made
        return self._loaded[source.model]


class LibraryEmbedder(Embedder):
    """One model, with the library's own prefixes, pooling and normalization."""

    def __init__(
        self,
        source: LibraryModel,
        model: LoadedModel,
        documents: ThreadPoolExecutor,
        questions: ThreadPoolExecutor,
    ) -> None:
        self.info = _info(source).model_copy(update={"max_tokens": model.max_tokens})
        self.traits = model.traits
        self.tokenizer, self.marks = model, model.marks
        self._model, self._documents, self._questions = model, documents, questions

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


def _check_dimension(source: LibraryModel, model: LoadedModel) -> None:
    found = model.documents(["a text"]).shape[1]
    if found != source.dimension:
        raise ConfigError(
            f"inline::{model.traits['library']}: {source.model!r} gives {found} dimensions, "
            f"configured are {source.dimension}.",
            hint="Correct dimension.",
            field="dimension",
        )


def _info(model: LibraryModel) -> ModelInfo:
    return ModelInfo(
        model=model.model, dimension=model.dimension, unrelated_cosine=model.unrelated_cosine
    )
