"""The routes of the random cases that read: searches, the RAG tool, chunks, lists and counts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import asdict
from typing import Any

from corral.api.chunks import Chunk
from corral.api.errors import Forbidden, InvalidRequest, NotFound
from corral.api.hits import QueryChunksResponse
from corral.api.options import RetrievalOptions, checked
from corral.api.principal import ACL_KEY, Principal, Role
from corral.api.rag import RAGQueryConfig
from corral.providers.base.documents import Page, list_documents, read_document
from corral.providers.rag.answer import Answerer, Ask
from corral.providers.rag.answer_events import Cited, Searched, Text
from corral.providers.rag.tool import RagTool

from .permission_worlds import ADMIN, WORDS, World, Worlds, comparable

TYPOS = {"sheep": "shepe", "fence": "fance", "grass": "gras"}
MODES = ("vector", "keyword", "hybrid")

ROUNDED: Mapping[str, float] = {"chroma": 1e-5}
"""How far scores without a filter may be from those with one that leaves few chunks, which Chroma's
provider scores in double precision, and Chroma in single."""


class Reading(Worlds):
    """Cases that change nothing, each compared with what the readable chunks give."""

    # --- searching ---------------------------------------------------------------------------

    def _question(self, world: World) -> str:
        rng = self._random
        words = rng.choices(WORDS, k=rng.randint(1, 4))
        if rng.random() < 0.2:
            words.append(rng.choice(list(world.chunks)))
        if rng.random() < 0.15:
            words = [TYPOS.get(word, word) for word in words]
        return " ".join(words)

    def _filters(self, depth: int = 2) -> dict[str, Any]:
        rng = self._random
        kind = rng.choice(["eq", "ne", "in", "nin", "gte", "and", "or"])
        if kind in ("and", "or") and depth:
            parts = [self._filters(depth - 1) for _ in range(rng.randint(1, 2))]
            return {"type": kind, "filters": parts}
        if kind in ("in", "nin"):
            return {"type": kind, "key": "n", "value": rng.sample([0, 1, 2], k=rng.randint(1, 2))}
        simple = kind if kind in ("eq", "ne", "gte") else "eq"
        return {"type": simple, "key": "n", "value": rng.randrange(3)}

    def _options(self, world: World) -> dict[str, Any]:
        """Return options that searches of every kind have."""
        rng = self._random
        options: dict[str, Any] = {"mode": rng.choice(MODES)}
        if rng.random() < 0.5:
            options["filters"] = self._filters()
        if rng.random() < 0.3:
            options["ranker"] = rng.choice(
                [{"type": "rrf"}, {"type": "weighted", "alpha": 0.3}, {"type": "max"}]
            )
        if rng.random() < 0.2:
            options["score_threshold"] = rng.random() * 0.6
        if world.fuzzy and options["mode"] != "vector" and rng.random() < 0.3:
            options["fuzzy"] = True
        return options

    def _bounded(self, world: World, who: Principal, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with which the operator finds what a principal may."""
        only = {"type": "in", "key": "id", "value": sorted(world.readable(who))}
        given = options.get("filters")
        both = only if given is None else {"type": "and", "filters": [only, given]}
        return {**options, "filters": both}

    async def _query(self, world: World, who: Principal) -> None:
        """EmbeddingIndex.query."""
        question, options = self._question(world), self._options(world)
        if self._random.random() < 0.1:
            options["include_embeddings"] = True
        options |= {"k": self._random.choice([1, 2, 3, 5, 10, 1000]), "query_string": question}
        embedder = await self._stack.embedder("hashing")
        options["embedding"] = await embedder.embed_query(question)
        found = await (await self._index(world, who)).query(**options)
        wanted = await (await self._index(world, ADMIN)).query(**self._bounded(world, who, options))
        self._check_marks(world, who, found, question)
        known = self._known(world, who)
        self._compare("the answer", _plain(found), _plain(wanted, known), _rounding(world, who))

    async def _search(self, world: World, who: Principal) -> None:
        """Retrieval: re-ranking, cutoff, syntax, several phrasings, explanations, dynamic k."""
        rng = self._random
        question, options = self._question(world), self._options(world)
        options |= {"explain": rng.random() < 0.5}
        if rng.random() < 0.3:
            options["rerank"] = rng.choice(
                [{"type": "mmr", "candidates": 20}, {"type": "bm25", "candidates": 20}]
            )
        if rng.random() < 0.2:
            options["cutoff"] = "gap"
        if rng.random() < 0.2:
            options["query_syntax"] = "web"
            question = f'"{rng.choice(WORDS)}" {question}'
        if rng.random() < 0.2:
            options["queries"] = [self._question(world)]
        k: Any = rng.choice([1, 3, 10, "auto"])
        asked = repr((question, options))
        found = await self._retrieve(world, who, question, k, options)
        most = k if k != "auto" else max(1, math.ceil(math.sqrt(len(world.readable(who)))))
        wanted = await self._retrieve(
            world, ADMIN, question, most, self._bounded(world, who, options)
        )
        self._check_marks(world, who, found, asked)
        known = self._known(world, who)
        self._compare("the answer", _plain(found), _plain(wanted, known), _rounding(world, who))

    async def _retrieve(
        self, world: World, who: Principal, question: str, k: Any, options: dict[str, Any]
    ) -> QueryChunksResponse:
        tool = RagTool(self._stack.for_principal(who))
        chosen = checked(RetrievalOptions, options)
        return await tool.retrieval.search(world.name, question, k=k, options=chosen)

    async def _context(self, world: World, who: Principal) -> None:
        """The RAG tool: neighbors, duplicates, documents, budgets, and what it says of them."""
        rng = self._random
        question, options = self._question(world), self._options(world)
        options |= {
            "max_chunks": rng.choice([2, 4, "auto"]),
            "expand": rng.choice([0, 1, 3]),
            "max_tokens_in_context": rng.choice([60, 200, 2000]),
            "deduplicate": rng.random() < 0.5,
            "order": rng.choice(["score", "document", "edges"]),
            "citations": rng.random() < 0.3,
        }
        if rng.random() < 0.3:
            options["max_chunks_per_document"] = rng.choice([1, 2])
        told = await self._ask(world, who, question, options)
        if options["max_chunks"] == "auto":
            options["max_chunks"] = max(1, math.ceil(math.sqrt(len(world.readable(who)))))
        wanted = await self._ask(world, ADMIN, question, self._bounded(world, who, options))
        self._check_marks(world, who, told, question)
        self._compare("the context", told, wanted, _rounding(world, who))

    async def _ask(
        self, world: World, who: Principal, question: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        tool = RagTool(self._stack.for_principal(who))
        config = checked(RAGQueryConfig, options)
        told = (await tool.query(question, [world.name], config)).model_dump()
        told["metadata"].pop("confidence", None)  # of the vector leg alone, but for an admin
        return told

    async def _answer(self, world: World, who: Principal) -> None:
        """An answer that quotes: its words, its citations, and the results that it shows."""
        question, options = self._question(world), self._options(world)
        options |= {"max_chunks": self._random.choice([1, 3, 8])}
        told = await self._quote(world, who, question, options)
        wanted = await self._quote(world, ADMIN, question, self._bounded(world, who, options))
        self._check_marks(world, who, told, question)
        self._compare("the answer", told, wanted, _rounding(world, who))

    async def _quote(
        self, world: World, who: Principal, question: str, options: dict[str, Any]
    ) -> list[Any]:
        stack = self._stack.for_principal(who)
        ask = Ask(
            model="extractive",
            messages=[{"role": "user", "content": question}],
            vector_db_ids=[world.name],
            config=checked(RAGQueryConfig, options),
        )
        told: list[Any] = []
        async for event in Answerer(RagTool(stack), stack).answer(ask):
            match event:
                case Searched(results=results, context=context):
                    told += [context, [(each.chunk.chunk_id, each.score) for each in results]]
                case Text(text):
                    told.append(text)
                case Cited(source, quote):
                    told.append((source.chunk.chunk_id, source.text, quote))
        return told

    # --- reading -----------------------------------------------------------------------------

    async def _get(self, world: World, who: Principal) -> None:
        ids = self._some_ids(world)
        found = await (await self._index(world, who)).get_chunks(ids)
        readable = world.readable(who)
        self._check_marks(world, who, found)
        known = self._known(world, who)
        wanted = [comparable(_told_to(who, readable[i]), known) for i in ids if i in readable]
        self._compare("what was read", [comparable(c) for c in found], wanted)

    async def _count(self, world: World, who: Principal) -> None:
        found = await (await self._index(world, who)).count()
        self._compare("the count", found, len(world.readable(who)))

    async def _ids(self, world: World, who: Principal) -> None:
        after = self._random.choice(["", *world.chunks])
        limit = self._random.choice([1, 3, 1000])
        found = await (await self._index(world, who)).chunk_ids(after, limit)
        wanted = sorted(i for i in world.readable(who) if i > after)[:limit]
        self._check_marks(world, who, found)
        self._compare("the ids", found, wanted)

    async def _documents(self, world: World, who: Principal) -> None:
        after = self._random.choice(["", *world.documents(world.chunks)])
        limit = self._random.choice([1, 3, 1000])
        found = await list_documents(await self._index(world, who), after, limit)
        counts = world.documents(world.readable(who))
        wanted = sorted(name for name in counts if name > after)
        self._check_marks(world, who, found)
        listed = [(one.document_id, one.chunks) for one in found.items]
        self._compare("the list", listed, [(n, counts[n]) for n in wanted[:limit]])
        self._compare("whether more follow", found.has_more, len(wanted) > limit)

    async def _document(self, world: World, who: Principal) -> None:
        name = self._random.choice([*world.documents(world.chunks), "unknown"])
        found = await read_document(await self._index(world, who), name, Page(0, 100))
        own = [c for c in world.readable(who).values() if c.document_id == name]
        self._check_marks(world, who, found and found.chunks, name)
        chunks = [comparable(c) for c in found.chunks] if found else []
        own.sort(key=lambda c: (c.chunk_metadata.position or 0) if c.chunk_metadata else 0)
        known = self._known(world, who)
        self._compare("the document", chunks, [comparable(_told_to(who, c), known) for c in own])

    async def _foreign(self, world: World, who: Principal) -> None:
        """Whoever is of another tenant is told what is told of a vector DB that does not exist."""
        foreign = Principal("other", who.user, who.groups, who.role)
        tool = RagTool(self._stack.for_principal(foreign))
        said = []
        for name in (world.name, "no such vector DB"):
            try:
                await tool.query("lamb", [name])
            except NotFound as error:
                said.append(str(error).replace(name, "NAME"))
            else:
                said.append("an answer")
        self._compare("what a foreigner is told", said[0], said[1])

    async def _forged(self, world: World, who: Principal) -> None:
        """The reserved key is refused in metadata and in filters."""
        index = await self._index(world, who)
        key = {"type": "nin", "key": ACL_KEY, "value": ["x"]}
        forged = Chunk(content="lamb", metadata={ACL_KEY: ["given", *who.tokens()]})
        tries: list[Awaitable[object]] = [
            index.query(None, "lamb", mode="keyword", filters={"type": "and", "filters": [key]}),
            index.add_chunks([forged], [[1.0, *[0.0] * 63]]),
        ]
        for number, attempt in enumerate(tries):
            try:
                await attempt
            except InvalidRequest:
                continue
            except Forbidden:
                self._compare("who may not write", (number, who.role), (1, Role.READER))
            else:
                self.findings.append(f"the reserved key was taken, {number}")


def _told_to(who: Principal, chunk: Chunk) -> Chunk:
    """Return a chunk as a principal gets it."""
    return chunk if who.may(Role.WRITER) else chunk.model_copy(update={"acl": None})


def _plain(found: QueryChunksResponse, known: Collection[str] | None = None) -> list[Any]:
    """Return an answer in a form that compares, without acls and the effect of the filter."""
    hits = [
        (
            {**comparable(hit.chunk, known), "acl": None},
            repr(hit.chunk.embedding),
            hit.score,
            asdict(hit.explanation),
        )
        for hit in found.hits
    ]
    return [hits, [asdict(s) for s in found.steps if s.name != "filter"], found.notes]


def _rounding(world: World, who: Principal) -> float:
    return ROUNDED.get(world.backend, 0.0) if who.role is Role.ADMIN else 0.0
