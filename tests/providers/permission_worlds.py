"""The vector DBs of the random cases, and the oracle: it knows all chunks, and who reads which."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.stack.registry import find_spec
from corral.providers.stack.stack import Stack

TENANT = "acme"
ADMIN = Principal(TENANT, "root", frozenset(), Role.ADMIN)
WORDS = ("lamb", "sheep", "wolf", "fence", "gate", "grass", "hill", "dog", "wool", "barn", "bell")
TOKENS = (
    "user:ann", "user:bob", "user:cem", "group:sales", "group:staff", "group:it's",
    "tenant:acme", "tenant:other", "tenant:*",
)  # fmt: skip
NAMES: Mapping[str, Sequence[str]] = {
    "user": ("", "ann", "bob", "cem", "an", "sales", "all"),
    "group": ("sales", "staff", "it's", "ann", "sale", "all"),
}
MARK = re.compile(r"\bm\d{5}x|\bd\d{5}x")
"""The mark of a chunk, in its id and its text, and of a document."""


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


class Worlds:
    """Makes worlds, some of each backend, and compares what they answer with what they should.

    Args:
        seed: Of everything.
        folder: For the backends.
        backends: Which, with how often each is asked.

    Attributes:
        findings: What was wrong, a sentence each.
    """

    def __init__(self, seed: int, folder: Path, backends: Mapping[str, int]) -> None:
        self.findings: list[str] = []
        self._random = random.Random(seed)
        self._backends = backends
        self._numbers = count(1)
        self._stack = Stack(_config(backends), folder)
        self._worlds: list[World] = []
        self._copies = count(1)

    async def __aenter__(self) -> Self:
        for backend in self._backends:
            for default in (["tenant:*"], ["group:staff", "user:ann"]):
                await self._make(backend, default)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.close()

    # --- making worlds, chunks and principals ------------------------------------------------

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

    def _some_ids(self, world: World) -> list[str]:
        rng = self._random
        ids = rng.sample(sorted(world.chunks), k=min(len(world.chunks), rng.randint(1, 6)))
        return [*ids, "unknown"] if rng.random() < 0.3 else ids

    # --- comparing ---------------------------------------------------------------------------

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


def _config(backends: Collection[str]) -> RunConfig:
    names = dict.fromkeys([*backends, "memory"])
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    extractive = {"provider_id": "extractive", "provider_type": "inline::extractive"}
    engines = [{"provider_id": n, "provider_type": f"inline::{n}"} for n in names]
    return RunConfig.model_validate(
        {
            "providers": {
                "vector_io": engines,
                "embedding": [{**hashing, "config": {"dimension": 64}}],
                "inference": [{**extractive, "config": {"min_confidence": 0}}],
            },
            "default_embedding_model": "hashing",
        }
    )


def comparable(chunk: Chunk, known: Collection[str] | None = None) -> dict[str, Any]:
    """Return a chunk in a form that compares, its record naming only known chunks beside it."""
    plain = chunk.model_dump(exclude={"embedding"})
    for name in ("previous_chunk_id", "next_chunk_id"):
        record = plain["chunk_metadata"]
        if record and known is not None and record[name] not in known:
            record[name] = None
    return plain


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
