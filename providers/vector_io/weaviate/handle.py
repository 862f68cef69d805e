"""One collection of Weaviate as a whole: how it is made, signed and dropped, and its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Any, NoReturn, TypeVar

from weaviate import WeaviateAsyncClient
from weaviate.classes.config import ConsistencyLevel
from weaviate.exceptions import UnexpectedStatusCodeError

from corral.api.errors import ConfigError, CorralError, NotFound, ProviderError
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.weaviate.connection import Connection, waiting
from corral.providers.vector_io.weaviate.schema import settings

T = TypeVar("T")
Native = Any
"""The client's handle of a collection, whose type parameters say nothing here."""

LAYOUT = 1
"""Changes with what an object holds; a newer one is refused."""

_SIGNATURE = "Corral layout "
_MADE_UP = "Weaviate's auto-schema"
_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2)  # between looks at the vector queue; the last one repeats


class Handle:
    """A collection by name.

    Its description names the layout of its objects. For an object of an unknown name Weaviate makes
    up a collection, whose description says so, and then refuses the object for want of a vector.

    Args:
        vector_db: The registration.
        name: The collection's name.
        connection: To the server; the collection is one of its users until `leave`.
    """

    def __init__(self, vector_db: VectorDB, name: str, connection: Connection) -> None:
        self._vector_db = vector_db
        self._name = name
        self._connection = connection
        self._inside = True
        connection.enter(name)

    async def make(self) -> bool:
        """Make the collection where there is none; return whether it was made.

        One that another process makes at this moment is fine.

        Raises:
            ConfigError: Weaviate refused to make it, and said why.
        """

        async def create(client: WeaviateAsyncClient) -> None:
            wanted = settings(self._vector_db, self._connection.config)
            try:
                await client.collections.create(
                    self._name, description=f"{_SIGNATURE}{LAYOUT}", **wanted
                )
            except UnexpectedStatusCodeError as error:
                if not await client.collections.exists(self._name):
                    self._refuse(error)

        if await self._description() is not None:
            return False
        await self._connection.call(create)
        return True

    async def sign(self) -> None:
        """Record the layout in a collection of a Corral that recorded none.

        Raises:
            NotFound: The collection is gone.
            ConfigError: A newer Corral wrote it.
        """
        layout = await self.require()
        if layout > LAYOUT:
            raise ConfigError(
                f"{self._connection.provider_id}: a newer Corral wrote this vector DB.",
                hint="Run that version.",
            )
        if layout < LAYOUT:
            signature = f"{_SIGNATURE}{LAYOUT}"
            await self._request(lambda native: native.config.update(description=signature))

    async def require(self) -> int:
        """Return the layout of the collection; 0 where none is recorded.

        Raises:
            NotFound: It is gone; one that Weaviate has made up in its place is dropped.
        """
        description = await self._description()
        made_up = description is not None and _MADE_UP in description
        if made_up:
            await self.drop()
        if description is None or made_up:
            raise NotFound(
                f"{self._connection.provider_id}: the vector DB's collection is gone from"
                " Weaviate.",
                hint="Delete the vector DB and register it anew.",
                field="vector_db_id",
            )
        layout = description.removeprefix(_SIGNATURE)
        return int(layout) if layout.isdecimal() else 0

    async def drop(self) -> None:
        """Delete the collection; one that is gone already is fine."""
        await self._connection.call(lambda client: client.collections.delete(self._name))

    async def leave(self) -> None:
        """Let go of the connection."""
        if self._inside:
            self._inside = False
            await self._connection.leave(self._name)

    async def settle(self) -> None:
        """Wait until vector search sees what was written, `timeout_seconds` at most.

        With ASYNC_INDEXING an acknowledged object waits in a queue. The write is stored by now, so
        nothing here raises; health says what still waits.
        """
        with suppress(CorralError, TimeoutError):
            async with asyncio.timeout(self._connection.config.timeout_seconds):
                for pause in chain(_PAUSES_SECONDS, repeat(_PAUSES_SECONDS[-1])):
                    if not await self._connection.call(partial(waiting, name=self._name)):
                        return
                    await asyncio.sleep(pause)

    # --- requests ----------------------------------------------------------------------------

    async def _read(self, request: Callable[[Native], Awaitable[T]]) -> T:
        return await self._request(request)

    async def _write(self, request: Callable[[Native], Awaitable[T]]) -> T:
        everywhere = ConsistencyLevel.ALL  # so that any replica answers the next query

        def consistent(native: Native) -> Awaitable[T]:
            return request(native.with_consistency_level(everywhere))

        return await self._request(consistent)

    async def _request(self, request: Callable[[Native], Awaitable[T]]) -> T:
        try:
            return await self._connection.call(
                lambda client: request(
                    client.collections.use(self._name, skip_argument_validation=True)
                )
            )
        except ProviderError as error:
            if not error.retryable:
                await self.require()
            raise

    async def _description(self) -> str | None:
        """Return the description, "" for none; None where there is no collection."""

        async def describe(client: WeaviateAsyncClient) -> str | None:
            try:
                found = await client.collections.use(
                    self._name, skip_argument_validation=True
                ).config.get(simple=True)
            except UnexpectedStatusCodeError as error:
                if error.status_code == 404:
                    return None
                raise
            return found.description or ""

        return await self._connection.call(describe)

    def _refuse(self, error: UnexpectedStatusCodeError) -> NoReturn:
        """Raise what making a collection was refused with: that text is about settings alone."""
        if error.status_code != 422:
            raise error
        raise ConfigError(
            f"{self._connection.provider_id}: Weaviate refused to make the collection:"
            f" {_said(error)}.",
            hint="Change the provider's settings, or the server's.",
        ) from error


def _said(error: UnexpectedStatusCodeError) -> str:
    """Return the server's own words."""
    body: Any = error.error
    with suppress(TypeError, KeyError):
        return "; ".join(str(one["message"]) for one in body["error"])
    return str(body)
