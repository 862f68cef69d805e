"""Tenants: each has ids of its own, and nothing of another's exists for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest, NotFound
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.stack.stack import Stack

TENANTS = ("", "acme", "globex")


def config(provider: str = "inline::sqlite") -> RunConfig:
    """Return a configuration with one engine and the hashing embedder."""
    hashing = {"provider_type": "inline::hashing", "config": {"dimension": 16}}
    return RunConfig.model_validate(
        {
            "providers": {
                "vector_io": [{"provider_id": "engine", "provider_type": provider}],
                "embedding": [{"provider_id": "hashing", **hashing}],
            },
            "default_embedding_model": "hashing",
        }
    )


@asynccontextmanager
async def opened(home: Path, provider: str = "inline::sqlite") -> AsyncIterator[dict[str, Stack]]:
    """Yield a stack as each tenant's writer sees it, and close it."""
    stack = Stack(config(provider), home)
    try:
        yield {t: stack.for_principal(Principal(tenant=t, role=Role.WRITER)) for t in TENANTS}
    finally:
        await stack.close()


def registration(vector_db_id: str = "docs", **settings: object) -> VectorDBRegistration:
    """Return a registration with the hashing model."""
    body = {"vector_db_id": vector_db_id, "embedding_model": "hashing", **settings}
    return VectorDBRegistration.model_validate(body)


@pytest.mark.parametrize("provider", ["inline::sqlite", "inline::memory", "inline::faiss"])
async def test_the_same_id_is_three_vector_dbs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """Three tenants register one id at one moment: each has its own chunks, settings and life.

    If this fails: a tenant learns that a name is taken, or reads and deletes another's chunks.
    """
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    async with opened(tmp_path, provider) as stacks:
        for tenant, stack in stacks.items():
            mode = "keyword" if tenant == "acme" else "hybrid"
            made = await stack.register(registration(search_mode=mode))
            assert made.tenant == tenant
            await store(stack, "docs", [Chunk(content=f"fence of {tenant or 'nobody'}")])
        for tenant, stack in stacks.items():
            found = await (await stack.index("docs")).query(None, "fence", 5, mode="keyword")
            assert [hit.chunk.content for hit in found.hits] == [f"fence of {tenant or 'nobody'}"]
        await stacks["acme"].unregister("docs")
        with pytest.raises(NotFound, match="none yet"):
            await stacks["acme"].index("docs")
        assert await (await stacks["globex"].index("docs")).count() == 1
        assert await (await stacks[""].index("docs")).count() == 1
        assert await stacks[""].orphans("engine") == []


async def test_a_foreign_id_is_a_missing_one(tmp_path: Path) -> None:
    """Every call on another tenant's vector DB raises what it raises for an id that nobody has.

    If this fails: an error, or its hint, tells a tenant what others have.
    """
    async with opened(tmp_path) as stacks:
        await stacks["globex"].register(registration("theirs"))
        await stacks[""].register(registration("default"))
        acme = stacks["acme"]
        for call in (acme.vector_db, acme.index, acme.unregister):
            told = []
            for name in ("theirs", "default", "absent"):
                with pytest.raises(NotFound) as refused:
                    await call(name)
                told.append(str(refused.value).replace(name, "X"))
            assert len(set(told)) == 1, told
        with pytest.raises(NotFound):
            await acme.change_search("theirs", {"search_mode": "keyword"})
        assert await acme.vector_dbs() == []
        assert await acme.registered(["theirs", "default"]) == set()


async def test_a_tenant_attaches_none_of_the_operators_tables(tmp_path: Path) -> None:
    """`provider_vector_db_id` is for the default tenant; for others no such table exists.

    If this fails: a tenant reads a table that the operator attached for somebody else.
    """
    settings = {"attach": {"orders": {"table": "orders"}}}
    run = config("remote::pgvector")
    run.providers.vector_io[0].config = settings
    stack = Stack(run, tmp_path)
    try:
        asked = registration("mine", provider_vector_db_id="orders")
        for name in ("acme", "globex"):
            with pytest.raises(InvalidRequest, match="nothing named 'orders'"):
                await stack.for_principal(Principal(tenant=name, role=Role.ADMIN)).register(asked)
    finally:
        await stack.close()
