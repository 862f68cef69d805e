"""The rule of orphans, for the test of each provider whose data outlives the process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from corral.api.chunks import Chunk
from corral.api.provider import Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB

from .inline_backends import add, vector_db


def named(identifier: str) -> VectorDB:
    """Return a registration that no other test uses."""
    return vector_db(identifier=identifier, created_at=time.time())


def registered(*vector_dbs: VectorDB) -> Registered:
    """Return what answers that these are registered."""

    async def answer() -> Sequence[VectorDB]:
        return vector_dbs

    return answer


async def check_orphans(provider: VectorIOProvider) -> None:
    """Make three vector DBs and register one: the others are found, named, and can be removed.

    One of them has the same id and time as the registered one, and belongs to another installation.
    One is of the time before installations had ids.

    Raises:
        AssertionError: More or less is found, or the registered one loses anything.
    """
    kept, lost = named("kept").model_copy(update={"installation": "a" * 32}), named("lost")
    other = kept.model_copy(update={"installation": "b" * 32})
    before = {orphan.name for orphan in await provider.orphans(registered())}
    for one in (kept, lost, other):
        index = await provider.open_index(one, create=True)
        await add(index, [Chunk(content=f"in {one.identifier}", chunk_id="c")])
        await index.close()

    every = [o for o in await provider.orphans(registered(kept)) if o.name not in before]
    found = {orphan.installation: orphan for orphan in every}
    assert len(every) == len(found) == 2
    assert found[""].vector_db_id in (None, "lost")
    assert found["b" * 32].vector_db_id in (None, "kept")
    assert {o.name for o in await provider.orphans(registered(kept, lost, other))} == before

    for orphan in every:
        await orphan.drop()
    assert {o.name for o in await provider.orphans(registered(kept))} == before
    index = await provider.open_index(kept)
    assert [chunk.content for chunk in await index.get_chunks(["c"])] == ["in kept"]
    await index.delete()
    assert {o.name for o in await provider.orphans(registered())} == before
