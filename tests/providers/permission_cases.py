"""Random cases of who asks what, of which chunks, where; each is compared with an oracle.

A case is a principal, a backend, a route into it and that route's arguments. The oracle knows every
chunk and its acl, decides by the words of the rule who reads which, and says what must come back:

* what is searched for is what the operator finds with a filter that names the readable chunks, to
  the last score: what is hidden moves nothing. Only who may read everything, and so is not
  filtered, may get scores that differ by an engine's rounding (`ROUNDED`);
* what is listed, counted or read is what a dictionary of the readable chunks gives;
* what is written is stored, or refused as the rule says, and then nothing has changed;
* no mark of a chunk that may not be read is anywhere in an answer, its explanation or an error.

The full run is one command, from the root of the project:

    python -m tests.providers.permission_cases --cases 100000 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, CorralError, Forbidden, InvalidRequest, NotFound
from corral.api.hits import QueryChunksResponse
from corral.api.options import RetrievalOptions, checked
from corral.api.principal import ACL_KEY, Principal, Role
from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.config import RunConfig
from corral.providers.copying.copy import copy_vector_db
from corral.providers.documents import Page, delete_document, list_documents, read_document
from corral.providers.ingestion.storing import store
from corral.providers.rag.tool import RagTool
from corral.providers.registry import find_spec
from corral.providers.stack import Stack

TENANT = "acme"
ADMIN = Principal(TENANT, "root", frozenset(), Role.ADMIN)
WORDS = ("lamb", "sheep", "wolf", "fence", "gate", "grass", "hill", "dog", "wool", "barn", "bell")
TYPOS = {"sheep": "shepe", "fence": "fance", "grass": "gras"}
TOKENS = (
    "user:ann", "user:bob", "user:cem", "group:sales", "group:staff", "group:it's",
    "tenant:acme", "tenant:other", "tenant:*",
)  # fmt: skip
NAMES: Mapping[str, Sequence[str]] = {
    "user": ("", "ann", "bob", "cem", "an", "sales", "*"),
    "group": ("sales", "staff", "it's", "ann", "sale", "*"),
}
MODES = ("vector", "keyword", "hybrid")
MARK = re.compile(r"\bm\d{5}x|\bd\d{5}x")
"""The mark of a chunk, in its id and its text, and of a document."""

BACKENDS: Mapping[str, int] = {
    "memory": 10, "sqlite": 6, "faiss": 5, "qdrant": 4, "chroma": 1, "milvus": 1,
}  # fmt: skip
"""How often each is asked."""

ROUNDED: Mapping[str, float] = {"chroma": 1e-5}
"""How far scores without a filter may be from those with one that leaves few chunks, which Chroma's
provider scores in double precision, and Chroma in single."""

ROUTES: Mapping[str, float] = {
    "query": 30, "search": 18, "context": 14, "get": 6, "count": 3, "ids": 4, "documents": 3,
    "document": 5, "foreign": 3, "forged": 2, "add": 4, "replace": 3, "delete": 2, "remove": 2,
    "set_acl": 3, "copy": 0.05,
}  # fmt: skip
"""How often each way in is taken."""


@dataclass
class World:
    """One vector DB, and all that is known of it."""

    backend: str
    name: str
    default_acl: list[str]
    fuzzy: bool
    chunks: dict[str, Chunk] = field(default_factory=dict)

    def readable(self, who: Principal) -> dict[str, Chunk]:
        """Return the chunks that a principal reads."""
        return {i: c for i, c in self.chunks.items() if reads(who, c.acl, self.default_acl)}

    def documents(self, chunks: Mapping[str, Chunk]) -> Counter[str]:
        """Return the number of chunks by document."""
        return Counter(c.document_id for c in chunks.values() if c.document_id)


def reads(who: Principal, acl: Sequence[str] | None, default: Sequence[str]) -> bool:
    """Return True if a principal reads a chunk: the rule, in words of its own."""
    if who.role is Role.ADMIN:
        return True
    for token in default if acl is None else acl:
        kind, name = token.split(":", 1)
        if token == "tenant:*":
            return True
        if kind == "user" and name == who.user != "":
            return True
        if kind == "group" and name in who.groups:
            return True
        if kind == "tenant" and name == who.tenant != "":
            return True
    return False


def may_give(who: Principal, acl: Sequence[str] | None, default: Sequence[str]) -> bool:
    """Return True if a principal may store a chunk with this acl."""
    if who.role is Role.ADMIN:
        return True
    if acl is None:
        return reads(who, None, default)
    return bool(acl) and all(reads(who, [token], []) for token in acl)


class Cases:
    """Runs cases, one after the other, on some backends.

    Args:
        seed: Of everything.
        folder: For the backends.
        backends: Which, with how often each is asked.
        routes: The names of those that are taken; all where none is named.

    Attributes:
        findings: What was wrong, a sentence each.
        seen: How many cases there were by route.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        backends: Mapping[str, int] = BACKENDS,
        routes: Collection[str] = (),
    ) -> None:
        self.findings: list[str] = []
        self.seen: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._backends, self._routes = backends, routes
        self._numbers = count(1)
        self._stack = Stack(_config(backends), folder)
        self._worlds: list[World] = []
        self._copies = count(1)

    async def __aenter__(self) -> Cases:
        for backend in self._backends:
            for default in (["tenant:*"], ["group:staff", "user:ann"]):
                await self._make(backend, default)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.close()

    async def run(self, cases: int, *, until_found: bool = False) -> None:
        """Run so many cases; fewer where one finding is enough."""
        for _ in range(cases):
            await self._case()
            if until_found and self.findings:
                return

    # --- the worlds --------------------------------------------------------------------------

    async def _make(self, backend: str, default: list[str]) -> None:
        able = find_spec("vector_io", f"inline::{backend}").capabilities  # type: ignore[arg-type]
        world = World(backend, f"{backend} {len(self._worlds)}", default, able.fuzzy)
        stack = self._stack.for_principal(ADMIN)
        await stack.register(
            VectorDBRegistration(
                vector_db_id=world.name, embedding_model="hashing", provider_id=backend,
                language="simple", default_acl=default,
            )
        )  # fmt: skip
        for _ in range(14):
            await self._insert(stack, world, self._made(self._acl()))
        self._worlds.append(world)

    async def _insert(self, stack: Stack, world: World, chunks: Sequence[Chunk]) -> None:
        await store(stack, world.name, chunks)
        world.chunks.update({chunk.chunk_id: chunk for chunk in chunks})

    def _made(self, acl: list[str] | None, name: str = "") -> list[Chunk]:
        """Return a document of a few adjacent chunks, one perhaps with an acl of its own."""
        rng = self._random
        name = name or f"d{next(self._numbers):05}x"
        size = rng.randint(1, 5)
        marks = [f"m{next(self._numbers):05}x" for _ in range(size)]
        texts = [" ".join([*rng.choices(WORDS, k=rng.randint(2, 7)), mark]) for mark in marks]
        odd = rng.randrange(size) if rng.random() < 0.3 else None
        chunks, start = [], 0
        for place, (mark, text) in enumerate(zip(marks, texts, strict=True)):
            chunks.append(
                Chunk(
                    chunk_id=mark,
                    content=text,
                    metadata={"document_id": name, "id": mark, "n": rng.randrange(3)},
                    chunk_metadata=ChunkMetadata(
                        position=place,
                        char_start=start,
                        char_end=start + len(text),
                        gap_before=" " if place else None,
                        previous_chunk_id=marks[place - 1] if place else None,
                        next_chunk_id=marks[place + 1] if place + 1 < size else None,
                    ),
                    acl=self._acl() if place == odd else acl,
                )
            )
            start += len(text) + 1
        return chunks

    def _acl(self) -> list[str] | None:
        rng = self._random
        if rng.random() < 0.25:
            return None
        return sorted(rng.sample(TOKENS, k=rng.choice([0, 1, 1, 1, 2, 3])))

    def _principal(self) -> Principal:
        rng = self._random
        groups = frozenset(rng.sample(NAMES["group"], k=rng.choice([0, 0, 1, 2])))
        role = rng.choices(list(Role), weights=[4, 5, 1])[0]
        return Principal(TENANT, rng.choice(NAMES["user"]), groups, role)

    # --- one case ----------------------------------------------------------------------------

    async def _case(self) -> None:
        rng = self._random
        weights = [self._backends[world.backend] for world in self._worlds]
        world = rng.choices(self._worlds, weights)[0]
        who = self._principal()
        taken = {n: often for n, often in ROUTES.items() if not self._routes or n in self._routes}
        name = rng.choices(list(taken), list(taken.values()))[0]
        route: Callable[[World, Principal], Awaitable[None]] = getattr(self, f"_{name}")
        self.seen[name] += 1
        before = len(self.findings)
        try:
            await route(world, who)
        except CorralError as error:
            self.findings.append(f"wrong refusal: {type(error).__name__} {error}")
        for place in range(before, len(self.findings)):
            told = f"{name} on {world.backend} by {who.user!r} {sorted(who.groups)} {who.role}"
            self.findings[place] = f"{told}: {self.findings[place]}"
        if len(world.chunks) < 30:
            await self._insert(self._stack.for_principal(ADMIN), world, self._made(self._acl()))

    def _compare(self, what: str, found: Any, wanted: Any, within: float = 0.0) -> None:
        if not _alike(found, wanted, within):
            self.findings.append(f"{what} is {found!r:.600}, not {wanted!r:.600}")

    def _check_marks(self, world: World, who: Principal, answer: object, asked: str = "") -> None:
        """Note the marks of an answer that are of no readable chunk or document."""
        if who.role is Role.ADMIN:
            return
        readable = world.readable(who)
        known = {*readable, *world.documents(readable), *MARK.findall(asked)}
        leaked = {mark for mark in MARK.findall(repr(answer)) if mark not in known}
        if leaked:
            self.findings.append(f"leak of {sorted(leaked)[:5]}")

    async def _index(self, world: World, who: Principal) -> EmbeddingIndex:
        return await self._stack.for_principal(who).index(world.name)

    def _known(self, world: World, who: Principal) -> Collection[str] | None:
        """Return the ids that a chunk's record may name to a principal, None for all."""
        return None if who.role is Role.ADMIN else world.readable(who).keys()

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

    # --- reading -----------------------------------------------------------------------------

    def _some_ids(self, world: World) -> list[str]:
        rng = self._random
        ids = rng.sample(sorted(world.chunks), k=min(len(world.chunks), rng.randint(1, 6)))
        return [*ids, "unknown"] if rng.random() < 0.3 else ids

    async def _get(self, world: World, who: Principal) -> None:
        ids = self._some_ids(world)
        found = await (await self._index(world, who)).get_chunks(ids)
        readable = world.readable(who)
        self._check_marks(world, who, found)
        known = self._known(world, who)
        wanted = [_stored(_told_to(who, readable[i]), known) for i in ids if i in readable]
        self._compare("what was read", [_stored(c) for c in found], wanted)

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
        chunks = [_stored(c) for c in found.chunks] if found else []
        own.sort(key=lambda c: (c.chunk_metadata.position or 0) if c.chunk_metadata else 0)
        known = self._known(world, who)
        self._compare("the document", chunks, [_stored(_told_to(who, c), known) for c in own])

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

    # --- writing -----------------------------------------------------------------------------

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
        found = {c.chunk_id: _stored(c) for c in await index.get_chunks(sorted(ids))}
        wanted = {i: _stored(world.chunks[i], known) for i in ids if i in world.chunks}
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


def _config(backends: Collection[str]) -> RunConfig:
    names = dict.fromkeys([*backends, "memory"])
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    engines = [{"provider_id": n, "provider_type": f"inline::{n}"} for n in names]
    return RunConfig.model_validate(
        {
            "providers": {
                "vector_io": engines,
                "embedding": [{**hashing, "config": {"dimension": 64}}],
            },
            "default_embedding_model": "hashing",
        }
    )


def _told_to(who: Principal, chunk: Chunk) -> Chunk:
    """Return a chunk as a principal gets it."""
    return chunk if who.may(Role.WRITER) else chunk.model_copy(update={"acl": None})


def _stored(chunk: Chunk, known: Collection[str] | None = None) -> dict[str, Any]:
    """Return a chunk in a form that compares, its record naming only known chunks beside it."""
    plain = chunk.model_dump(exclude={"embedding"})
    for name in ("previous_chunk_id", "next_chunk_id"):
        record = plain["chunk_metadata"]
        if record and known is not None and record[name] not in known:
            record[name] = None
    return plain


def _plain(found: QueryChunksResponse, known: Collection[str] | None = None) -> list[Any]:
    """Return an answer in a form that compares, without acls and the effect of the filter."""
    hits = [
        (
            {**_stored(hit.chunk, known), "acl": None},
            repr(hit.chunk.embedding),
            hit.score,
            asdict(hit.explanation),
        )
        for hit in found.hits
    ]
    return [hits, [asdict(s) for s in found.steps if s.name != "filter"], found.notes]


def _rounding(world: World, who: Principal) -> float:
    return ROUNDED.get(world.backend, 0.0) if who.role is Role.ADMIN else 0.0


def _alike(found: Any, wanted: Any, within: float) -> bool:
    """Return True if two answers are equal, but for this difference of each number."""
    if type(found) is not type(wanted):
        return bool(found == wanted)
    if isinstance(found, float):
        return bool(found == wanted or abs(found - wanted) <= within)
    if isinstance(found, dict):
        return found.keys() == wanted.keys() and all(
            _alike(found[key], wanted[key], within) for key in found
        )
    if isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(
            _alike(one, other, within) for one, other in zip(found, wanted, strict=True)
        )
    return bool(found == wanted)


async def main(cases: int, seed: int, backends: Mapping[str, int]) -> int:
    """Run cases, print what was found, and return how many findings there are."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with Cases(seed, Path(folder), backends) as run:
            await run.run(cases)
    total = sum(run.seen.values())
    print(f"{total} cases on {', '.join(backends)}, seed {seed}, ", end="")
    print(f"{time.monotonic() - started:.0f} s: {len(run.findings)} findings")
    print(", ".join(f"{name} {number}" for name, number in run.seen.most_common()))
    print("\n".join(run.findings[:20]))
    return len(run.findings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare random cases with an oracle.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    given = parser.parse_args()
    chosen = {name: BACKENDS.get(name, 1) for name in given.backends.split(",")}
    sys.exit(bool(asyncio.run(main(given.cases, given.seed, chosen))))
