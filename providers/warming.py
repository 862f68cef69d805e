"""Loads the models that are in use when a server starts, so that no question waits for them."""

from __future__ import annotations

import logging

from corral.api.errors import CorralError
from corral.providers.background import BackgroundWork
from corral.providers.stack import Stack

_LOG = logging.getLogger(__name__)


class Warmup(BackgroundWork):
    """Loads the embedding models of the registered vector DBs of all tenants, in the background.

    Questions that come earlier wait for the same loading.

    Args:
        stack: The whole of it; no principal's view.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def _run(self) -> None:
        await self.once()

    async def once(self) -> None:
        """Load each model. A failure is logged, and again an error of whoever needs the model."""
        used = {each.embedding_model for each in await self._stack.vector_dbs_of_all()}
        for model in sorted(used):
            try:
                await self._stack.embedder(model)
            except CorralError as error:
                _LOG.warning("The embedding model %s cannot be loaded: %s", model, error)
