"""Permissions from end to end: random cases agree with an oracle that sees planted bypasses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.filters import Compound, matches
from corral.api.hits import QueryChunksResponse, Step
from corral.api.principal import ACL_KEY, UNRESTRICTED, Principal, Role
from corral.api.scope import Scope
from corral.api.scoped_engine import ScopedEngine
from corral.providers.rag import ranking, search
from corral.providers.rag.passages import adjacent
from corral.providers.stack import copy_steps
from corral.providers.stack.stack import Stack
from corral.providers.vector_io.store.engine import ChunkFileEngine

from .permission_cases import Cases

SEED = 13
SMALL = {"memory": 400, "sqlite": 150, "faiss": 150, "lancedb": 150, "qdrant": 150}
"""Cases of `make test`; `permission_cases.py` says how all 100,000 are run."""


@pytest.mark.parametrize("backend", SMALL)
async def test_random_cases_agree_with_the_oracle(tmp_path: Path, backend: str) -> None:
    """Whoever asks, by whatever way: nothing hidden is told, and nothing open is refused.

    If this fails: the finding names the route, the principal and what differs. Run
    `python -m tests.providers.permission_cases --seed 13 --backends NAME` to see more.
    """
    async with Cases(SEED, tmp_path, {backend: 1}) as run:
        await run.run(SMALL[backend])
    assert run.findings == []


# --- planted bypasses -----------------------------------------------------------------------------

Patch = pytest.MonkeyPatch
Bypass = Callable[[Patch], None]
BYPASSES: dict[str, tuple[Bypass, tuple[str, ...]]] = {}
"""By what is planted: how, and the routes on which it must be seen."""


def seen_on(*routes: str) -> Callable[[Bypass], Bypass]:
    """Register a bypass that cases on these routes must find."""

    def register(bypass: Bypass) -> Bypass:
        BYPASSES[bypass.__name__.strip("_")] = bypass, routes
        return bypass

    return register


def whole(index: EmbeddingIndex) -> EmbeddingIndex:
    """Return the index behind a view."""
    assert isinstance(index, EngineIndex)
    return EngineIndex(index.engine)


def of_the_whole(patch: Patch, method: str) -> None:
    """Let a public method answer a scoped index as it answers the whole one."""
    plain = getattr(EngineIndex, method)

    async def answer(self: EngineIndex, *given: Any, **more: Any) -> Any:
        return await plain(whole(self), *given, **more)

    patch.setattr(EngineIndex, method, answer)


def unchecked(patch: Patch) -> None:
    """Take away the second look at what a hook has found, behind which a leg could hide."""
    patch.setattr(Scope, "sees", lambda *_: True)


@seen_on("query", "answer")
def _a_route_without_the_scope(patch: Patch) -> None:
    patch.setattr(
        Stack, "index", lambda self, name, plain=Stack.index: _as_operator(self, name, plain)
    )


async def _as_operator(stack: Stack, name: str, plain: Any) -> EmbeddingIndex:
    return whole(await plain(stack, name))


@seen_on("query")
def _a_search_that_ignores_the_scope(patch: Patch) -> None:
    unchecked(patch)
    patch.setattr(Scope, "narrowed", lambda _, filters: filters)


@seen_on("query")
def _a_check_behind_the_search_alone(patch: Patch) -> None:
    patch.setattr(Scope, "narrowed", lambda _, filters: filters)


@seen_on("query")
def _a_vector_leg_that_filters_the_best_k(patch: Patch) -> None:
    plain = ChunkFileEngine.search_vector

    async def after(self: ChunkFileEngine, embedding: Any, k: int, filter_: Any) -> Any:
        if ACL_KEY not in repr(filter_):  # the oracle's, which names what may be read
            return await plain(self, embedding, k, filter_)
        best = await plain(self, embedding, k, None)
        stored = await self.get([one.chunk_id for one in best], include_embeddings=False)
        passing = {one.chunk_id for one in stored if matches(filter_, one.metadata)}
        return [one for one in best if one.chunk_id in passing]

    patch.setattr(ChunkFileEngine, "search_vector", after)


@seen_on("query")
def _a_keyword_leg_that_ignores_filters(patch: Patch) -> None:
    unchecked(patch)
    plain = ChunkFileEngine.search_keyword
    patch.setattr(
        ChunkFileEngine, "search_keyword", lambda self, text, k, _: plain(self, text, k, None)
    )


@seen_on("query")
def _a_fuzzy_leg_that_ignores_filters(patch: Patch) -> None:
    unchecked(patch)
    plain = ChunkFileEngine.search_fuzzy
    patch.setattr(
        ChunkFileEngine, "search_fuzzy", lambda self, text, k, _: plain(self, text, k, None)
    )


@seen_on("query")
def _a_scope_that_offers_a_choice(patch: Patch) -> None:
    unchecked(patch)
    plain = Scope.narrowed

    def either(self: Scope, filters: Any) -> Any:
        narrowed = plain(self, filters)
        joined = isinstance(narrowed, Compound) and filters is not None and not self.is_whole
        return replace(narrowed, type="or") if joined else narrowed  # type: ignore[type-var]

    patch.setattr(Scope, "narrowed", either)


@seen_on("query", "search")
def _a_cache_without_the_principal(patch: Patch) -> None:
    plain, kept = EngineIndex.query, dict[Any, QueryChunksResponse]()

    async def cached(self: EngineIndex, *given: Any, **more: Any) -> QueryChunksResponse:
        if self.principal.reads_all:  # the oracle's
            return await plain(self, *given, **more)
        key = repr((self.vector_db.key, given, sorted(more.items())))
        if key not in kept:
            kept[key] = await plain(self, *given, **more)
        return kept[key]

    patch.setattr(EngineIndex, "query", cached)
    patch.setattr(Cases, "_question", lambda *_: "lamb")
    patch.setattr(Cases, "_options", lambda *_: {"mode": "keyword"})


@seen_on("get")
def _an_id_that_is_guessed(patch: Patch) -> None:
    of_the_whole(patch, "get_chunks")


@seen_on("get")
def _a_record_that_names_a_hidden_chunk(patch: Patch) -> None:
    patch.setattr("corral.api.scoped_engine.linked", lambda chunk, _: chunk)


@seen_on("search")
def _an_explanation_of_the_whole(patch: Patch) -> None:
    async def effect(index: Any, how: Any, query: Any, size: int) -> Any:
        found = await ranking._query(whole(index), how, query, size, None)
        names = ", ".join(hit.chunk.chunk_id for hit in found.hits)
        return Step("filter", 0, 0, f"best without the filter: {names}")

    patch.setattr(ranking, "_filter_effect", effect)


@seen_on("context")
def _neighbors_of_the_whole(patch: Patch) -> None:
    plain = adjacent
    patch.setattr(search, "adjacent", lambda index, *rest: plain(whole(index), *rest))
    patch.setattr("corral.api.scoped_engine.linked", lambda chunk, _: chunk)


@seen_on("search", "context", "count")
def _a_count_of_the_whole(patch: Patch) -> None:
    of_the_whole(patch, "count")


@seen_on("ids")
def _ids_of_the_whole(patch: Patch) -> None:
    of_the_whole(patch, "chunk_ids")


@seen_on("documents")
def _documents_of_the_whole(patch: Patch) -> None:
    of_the_whole(patch, "documents")


@seen_on("documents")
def _documents_counted_whole(patch: Patch) -> None:
    plain = ChunkFileEngine.documents_passing

    async def counted(self: ChunkFileEngine, after: str, limit: int, filters: Any) -> Any:
        named = {one.document_id for one in await plain(self, after, limit, filters)}
        every = await plain(self, after, 1000, None)
        return [one for one in every if one.document_id in named]

    patch.setattr(ChunkFileEngine, "documents_passing", counted)


@seen_on("delete", "remove")
def _a_deletion_of_what_is_hidden(patch: Patch) -> None:
    async def every(self: Any, ids: Sequence[str]) -> list[str]:
        return list(ids)

    patch.setattr(ScopedEngine, "visible_ids", every)


@seen_on("add", "replace")
def _an_id_that_overwrites(patch: Patch) -> None:
    async def add(self: ScopedEngine, chunks: Any, matrix: Any, replaced: Any) -> None:
        await self.engine.add(chunks, matrix, replaced)

    patch.setattr(ScopedEngine, "add", add)


@seen_on("set_acl")
def _an_acl_changed_unseen(patch: Patch) -> None:
    of_the_whole(patch, "set_acl")


@seen_on("add", "set_acl")
def _a_writer_who_gives_what_it_lacks(patch: Patch) -> None:
    patch.setattr(Scope, "check_acl", lambda _, acl, **__: None if acl is None else sorted(acl))


@seen_on("add", "replace")
def _a_reader_who_writes(patch: Patch) -> None:
    patch.setattr(Scope, "check_writer", lambda _: None)


@seen_on("query", "count")
def _a_writer_who_reads_all(patch: Patch) -> None:
    patch.setattr(Principal, "reads_all", property(lambda self: self.role is not Role.READER))


@seen_on("query")
def _a_default_that_is_open_to_all(patch: Patch) -> None:
    patch.setattr(Scope, "sees_default", True)


@seen_on("query")
def _a_token_that_is_a_prefix(patch: Patch) -> None:
    plain = Principal.tokens
    longer = {"user:an": "user:ann", "group:sale": "group:sales"}
    patch.setattr(
        Principal, "tokens", lambda self: frozenset(longer.get(t, t) for t in plain(self))
    )


@seen_on("query")
def _a_group_for_a_user(patch: Patch) -> None:
    plain = Principal.tokens
    patch.setattr(
        Principal,
        "tokens",
        lambda self: plain(self) | {f"group:{self.user}", *(f"user:{g}" for g in self.groups)},
    )


@seen_on("copy")
def _a_copy_that_drops_acls(patch: Patch) -> None:
    plain = EngineIndex.add_chunks

    async def add(self: EngineIndex, chunks: Any, *rest: Any, **more: Any) -> None:
        bare = [chunk.model_copy(update={"acl": None}) for chunk in chunks]
        await plain(self, bare, *rest, **more)

    patch.setattr(copy_steps, "difference", lambda *_: "")
    patch.setattr(
        Stack, "for_principal", lambda self, _, plain=Stack.for_principal: plain(self, OPERATOR)
    )
    patch.setattr(EngineIndex, "add_chunks", add)


OPERATOR = replace(UNRESTRICTED, tenant="acme")


@seen_on("forged")
def _a_filter_on_the_acl(patch: Patch) -> None:
    patch.setattr("corral.api.scope._check_filter", lambda _: None)


@seen_on("forged")
def _an_acl_in_metadata(patch: Patch) -> None:
    patch.setattr("corral.api.scope.check_metadata", lambda *_, **__: None)


@seen_on("foreign")
def _a_registry_for_all_tenants(patch: Patch) -> None:
    patch.setattr(Stack, "_key", lambda _, name: ("acme", name))


@pytest.mark.parametrize("bypass", BYPASSES)
async def test_a_planted_bypass_is_seen(bypass: str, tmp_path: Path) -> None:
    """Each of these holes leads to a finding on the routes that go through it.

    If this fails: the oracle has become too weak to see the hole.
    """
    plant, routes = BYPASSES[bypass]
    async with Cases(SEED, tmp_path, {"memory": 1}, routes) as run:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            await run.run(300, until_found=True)
    assert run.findings, f"{sum(run.seen.values())} cases on {routes} have not seen it"
