"""Vector stores: create, get, list, change and delete a registration with its store fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import gt, lt
from typing import Any, Literal
from uuid import uuid4

from corral.api.errors import Forbidden, InvalidRequest, NotFound
from corral.api.principal import Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack.stack import Stack
from corral.providers.stack.vector_store_table import VectorStore


def new_identifier() -> str:
    """Return a new unique identifier: "vs_" and 24 hex digits."""
    return f"vs_{uuid4().hex[:24]}"


class VectorStores:
    """The vector stores of a stack's principal: its vector DBs, as OpenAI's API sees them."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._table = stack.stores
        self._tenant = stack.principal.tenant

    async def create(
        self, registration: VectorDBRegistration, details: Mapping[str, Any]
    ) -> VectorStore:
        """Register a vector DB, write its store fields, and return the store; all or nothing.

        Args:
            registration: A registration with an unused identifier.
            details: Fields of `VectorStore`: description, metadata, expires_after_days.

        Raises:
            CorralError: See `Stack.register`.
        """
        vector_db = await self._stack.register(registration)
        try:
            store = await self._table.store(vector_db)
            store = replace(store, **details, last_active_at=int(self._table.clock()))
            await self._table.put(store)
        except BaseException:
            await self._stack.unregister(vector_db.identifier)
            raise
        return store

    async def get(self, identifier: str) -> VectorStore:
        """Return a store, expired or not.

        Raises:
            NotFound: The store does not exist.
        """
        try:
            return await self._table.store(await self._stack.vector_db(identifier))
        except NotFound:
            left = await self._table.expired(self._tenant, identifier)
            if left is None:
                raise NotFound(
                    f"There is no vector store {identifier!r}.",
                    hint="GET /v1/vector_stores lists them.",
                    field="vector_store_id",
                ) from None
            return left

    async def usable(self, identifier: str) -> VectorStore:
        """Return a store that has not expired.

        Raises:
            NotFound: The store does not exist.
            Expired: The store has expired.
        """
        store = await self.get(identifier)
        store.check(self._table.clock(), "vector_store_id")
        return store

    async def page(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> tuple[list[VectorStore], bool]:
        """Return stores in the order of their creation, and True if more follow.

        Args:
            after: Identifier; only stores after it in the order.
            before: Identifier; only stores before it in the order.
            limit: Maximum number of stores.
            order: "desc" for newest first, "asc" for oldest first.

        Raises:
            InvalidRequest: `after` or `before` is not a store.
        """
        stores = await self._table.stores(self._tenant, await self._stack.vector_dbs())
        stores.sort(key=_place, reverse=order == "desc")
        follows, precedes = (lt, gt) if order == "desc" else (gt, lt)
        for field, given, fits in (("after", after, follows), ("before", before, precedes)):
            if given is not None:
                end = self._end(stores, given, field)
                stores = [store for store in stores if fits(_place(store), end)]
        # The stores before a position are read in reverse order.
        away = before is not None and after is None
        found = stores[-limit:] if away else stores[:limit]
        for store in (*found[:1], *found[-1:]):
            self._table.places.keep((self._tenant, store.identifier), _place(store))
        return found, len(stores) > limit

    def _end(self, stores: Sequence[VectorStore], given: str, field: str) -> tuple[float, str]:
        """Return the sort position of a store to continue from; a cached one if it is gone."""
        places = (_place(store) for store in stores if store.identifier == given)
        place = next(places, None) or self._table.places.find((self._tenant, given))
        if place is None:
            raise InvalidRequest(
                f"There is no vector store {given!r} to continue from.",
                hint="Use first_id or last_id of a page.",
                field=field,
            )
        return place

    async def update(self, identifier: str, changes: Mapping[str, Any]) -> VectorStore:
        """Change a store and return the changed store; this counts as activity.

        Args:
            changes: Fields of `VectorStore`: name, description, metadata, expires_after_days.

        Raises:
            NotFound: The store does not exist.
            Expired: The store has expired.
            Forbidden: The change affects the expiry, and the principal is not an admin.
            Conflict: Another process changed its name at the same time.
        """
        store = await self.usable(identifier)
        self._check_expiry(store, changes)
        changed = replace(store, **changes, last_active_at=int(self._table.clock()))
        if changed.name != store.name:
            await self._stack.rename(identifier, changed.name or None)
        await self._table.put(changed, {*changes, "last_active_at"})
        return await self.get(identifier)

    def _check_expiry(self, store: VectorStore, changes: Mapping[str, Any]) -> None:
        """Raise Forbidden if a principal other than an admin changes the expiry of a store."""
        days = changes.get("expires_after_days")
        admin = self._stack.principal.may(Role.ADMIN)
        if days not in (None, store.expires_after_days) and not admin:
            raise Forbidden(
                "Setting when an existing vector store expires needs the role admin "
                f"(yours is {self._stack.principal.role}).",
                hint="Give expires_after when you create it, or ask an admin.",
                field="expires_after",
            )

    async def delete(self, identifier: str) -> None:
        """Delete a store with its vector DB, or the row of an expired store.

        Raises:
            NotFound: The store does not exist.
            ProviderError: The backend failed; the store still exists.
        """
        store = await self.get(identifier)
        if await self._stack.registered([identifier]):
            await self._stack.unregister(identifier)
        await self._table.remove(*store.key)


def _place(store: VectorStore) -> tuple[float, str]:
    return store.created_at, store.identifier
