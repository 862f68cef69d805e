"""A provider for re-ranking models that run in this process: loading, health and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, Protocol, TypeVar

from corral.api.errors import CorralError
from corral.api.provider import Health, RerankProvider
from corral.api.reranker import Reranker
from corral.providers.models.loading import Loading


class Named(Protocol):
    """The settings of a model.

    Attributes:
        model: Name of the model.
    """

    model: str


Source = TypeVar("Source", bound=Named)


class LocalRerankProvider(RerankProvider, Generic[Source]):
    """Serves the configured models in one worker thread; each is loaded on first use.

    Args:
        provider_id: The id in the configuration.
        models: The configured models.
        load: Returns a re-ranker that computes in the given thread; slow. Raises ConfigError,
            MissingDependency or Unavailable.
        check: Raises CorralError if a model's files are missing; fast.
        close: Closes files that the re-rankers share; None if there are none.
    """

    def __init__(
        self,
        provider_id: str,
        models: Sequence[Source],
        load: Callable[[Source, ThreadPoolExecutor], Reranker],
        check: Callable[[Source], None],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(provider_id)
        self._models, self._check, self._close = list(models), check, close
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=provider_id)
        loads = {each.model: partial(load, each, self._worker) for each in models}
        self._loading = Loading(provider_id, "re-ranking", loads, self._worker)

    def models(self) -> list[str]:
        """Return the names of the configured models, in their order."""
        return [each.model for each in self._models]

    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a configured model. The first call loads it.

        Raises:
            NotFound: The model is not configured.
            ConfigError: Its files are missing, or are not those of a re-ranking model.
            MissingDependency: The package with its files is not installed.
            Unavailable: The hub with its files cannot be reached.
        """
        return await self._loading.model(model)

    async def health(self) -> Health:
        """Return OK unless files of a model are missing; files from a hub are not checked."""
        try:
            for model in self._models:
                await asyncio.to_thread(self._check, model)
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Stop the worker thread; work that has not begun is cancelled."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        if self._close is not None:
            await self._close()
