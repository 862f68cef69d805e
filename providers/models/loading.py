"""Load models in a worker thread, each on first use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar, TypeVarTuple

from corral.providers.models.names import not_served

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Loading(Generic[T]):
    """The models of one provider, by name. A model that failed to load is tried again.

    Args:
        provider_id: The provider's id in the configuration.
        kind: The purpose of the models, such as `re-ranking`, for error messages.
        loads: By name, a slow function that loads the model; aliases of a model share it.
        worker: The thread that loads models.
    """

    def __init__(
        self,
        provider_id: str,
        kind: str,
        loads: Mapping[str, Callable[[], T]],
        worker: ThreadPoolExecutor,
    ) -> None:
        self._provider_id, self._kind, self._worker = provider_id, kind, worker
        self._loads = loads
        self._loaded: dict[Callable[[], T], T] = {}
        self._turn = threading.Lock()

    async def model(self, name: str) -> T:
        """Return a model, the same object at each call.

        Raises:
            NotFound: There is no model with this name.
            CorralError: The model cannot be loaded.
        """
        load = self._loads.get(name)
        if load is None:
            raise not_served(self._provider_id, self._kind, name, self._loads)
        if load not in self._loaded:
            await run_in(self._worker, self._load, load)
        return self._loaded[load]

    def _load(self, load: Callable[[], T]) -> None:
        with self._turn:  # Concurrent callers load a model only once.
            if load not in self._loaded:
                self._loaded[load] = load()


async def run_in(lane: ThreadPoolExecutor, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function in a worker thread and return its result."""
    return await asyncio.get_running_loop().run_in_executor(lane, work, *args)
