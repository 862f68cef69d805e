"""The routes of the random cases that write: adding, replacing, deleting, acls and copies."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any

from corral.api.chunks import Chunk
from corral.api.errors import Conflict, CorralError, Forbidden
from corral.api.principal import Principal, Role
from corral.providers.base.documents import delete_document
from corral.providers.copying.copy import copy_vector_db
from corral.providers.ingestion.storing import store

from .permission_worlds import ADMIN, World, Worlds, comparable, may_give, reads


class Writing(Worlds):
    """Cases that write, or are refused as the rule says; what is stored is compared after each."""

    async def _attempt(
        self, world: World, who: Principal, wanted: type[CorralError] | None, work: Awaitable[Any]
    ) -> bool:
        """Return True if a write was done; note it if it should not have been, or the reverse."""
        refusal: type[CorralError] | None = None
        try:
            await work
        except (Forbidden, Conflict) as error:
            refusal = type(error)
            self._check_marks(world, who, str(error))
        name = wanted.__name__ if wanted else None
        self._compare("the refusal", refusal.__name__ if refusal else None, name)
        return refusal is None

    async def _check_state(
        self, world: World, ids: Collection[str], known: Collection[str] | None = None
    ) -> None:
        """Note it if the chunks of some ids are not stored as the oracle says, or the number."""
        index = await self._index(world, ADMIN)
        found = {c.chunk_id: comparable(c) for c in await index.get_chunks(sorted(ids))}
        wanted = {i: comparable(world.chunks[i], known) for i in ids if i in world.chunks}
        self._compare("what is stored", found, wanted)
        self._compare("the number stored", await index.count(), len(world.chunks))

    def _refusal(
        self, world: World, who: Principal, chunks: Sequence[Chunk], replaced: Collection[str]
    ) -> type[CorralError] | None:
        """Return what becomes of a write."""
        default = world.default_acl
        if not who.may(Role.WRITER):
            return Forbidden
        if not all(may_give(who, chunk.acl, default) for chunk in chunks):
            return Forbidden
        ids = {chunk.chunk_id for chunk in chunks}
        named = {*replaced, *(chunk.document_id for chunk in chunks)}
        touched = [c for i, c in world.chunks.items() if i in ids or c.document_id in named]
        hidden = any(not reads(who, c.acl, default) for c in touched)
        return Conflict if hidden else None

    async def _add(self, world: World, who: Principal) -> None:
        """Add chunks: new ones, over one that is there, or to a document that is there."""
        rng = self._random
        new = self._made(self._own_acl(who))
        if rng.random() < 0.4:
            there = rng.choice(sorted(world.chunks))
            place = rng.randrange(len(new))
            content = new[place].content.replace(new[place].chunk_id, there)
            new[place] = new[place].model_copy(update={"chunk_id": there, "content": content})
        if rng.random() < 0.3:
            name = rng.choice(sorted(world.documents(world.chunks)))
            new = [
                c.model_copy(update={"metadata": {**c.metadata, "document_id": name}}) for c in new
            ]
        new = [c.model_copy(update={"metadata": {**c.metadata, "id": c.chunk_id}}) for c in new]
        work = store(self._stack.for_principal(who), world.name, new)
        if await self._attempt(world, who, self._refusal(world, who, new, ()), work):
            world.chunks.update({c.chunk_id: c for c in new})
        await self._check_state(world, {c.chunk_id for c in new})

    def _own_acl(self, who: Principal) -> list[str] | None:
        """Return an acl that the principal often may give."""
        rng = self._random
        held = sorted(who.tokens())
        if rng.random() < 0.6:
            return sorted(rng.sample(held, k=rng.randint(1, len(held))))
        return self._acl()

    async def _replace(self, world: World, who: Principal) -> None:
        """Replace a document, by its new version or by one of another name."""
        rng = self._random
        name = rng.choice(sorted(world.documents(world.chunks)))
        new = self._made(self._own_acl(who), name if rng.random() < 0.7 else "")
        old = {i for i, c in world.chunks.items() if c.document_id == name}
        stack = self._stack.for_principal(who)
        work = store(stack, world.name, new, replace_documents=[name])
        if await self._attempt(world, who, self._refusal(world, who, new, [name]), work):
            world.chunks = {i: c for i, c in world.chunks.items() if i not in old}
            world.chunks.update({c.chunk_id: c for c in new})
        await self._check_state(world, old | {c.chunk_id for c in new})

    async def _delete(self, world: World, who: Principal) -> None:
        ids = self._some_ids(world)
        work = (await self._index(world, who)).delete_chunks(ids)
        if await self._attempt(world, who, None if who.may(Role.WRITER) else Forbidden, work):
            for chunk_id in world.readable(who).keys() & set(ids):
                del world.chunks[chunk_id]
        await self._check_state(world, ids)

    async def _remove(self, world: World, who: Principal) -> None:
        name = self._random.choice([*world.documents(world.chunks), "unknown"])
        own = {i for i, c in world.chunks.items() if c.document_id == name}
        reach = own & world.readable(who).keys()
        refusal = Forbidden if reach and not who.may(Role.WRITER) else None
        work = delete_document(await self._index(world, who), name)
        if await self._attempt(world, who, refusal, work):
            for chunk_id in reach:
                del world.chunks[chunk_id]
        await self._check_state(world, own)

    async def _set_acl(self, world: World, who: Principal) -> None:
        ids, acl = self._some_ids(world), self._own_acl(who)
        able = who.may(Role.WRITER) and may_give(who, acl, world.default_acl)
        work = (await self._index(world, who)).set_acl(ids, acl)
        reach = world.readable(who).keys() & set(ids)
        if await self._attempt(world, who, None if able else Forbidden, work):
            for chunk_id in reach:
                world.chunks[chunk_id] = world.chunks[chunk_id].model_copy(update={"acl": acl})
        await self._check_state(world, ids)

    async def _copy(self, world: World, who: Principal) -> None:
        """A copy holds what its maker reads, with the same acls, or is refused."""
        stack = self._stack.for_principal(who)
        target = f"copy {next(self._copies)}"
        mine = world.readable(who)
        if who.may(Role.WRITER) and all(
            may_give(who, c.acl, world.default_acl) for c in mine.values()
        ):
            await copy_vector_db(stack, world.name, target, provider_id="memory")
            copied = World("memory", target, world.default_acl, world.fuzzy, dict(mine))
            await self._check_state(copied, copied.chunks, self._known(world, who))
            await self._stack.for_principal(ADMIN).unregister(target)
