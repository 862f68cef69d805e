"""The scope of a principal in one vector DB: the chunks that it may read and write.

An acl is stored in the chunk's metadata under a reserved key, so that every engine stores it and
filters by it like any other key; providers need no code for it. This module adds and removes it.
Only the public methods of `EmbeddingIndex` use this module.

The stored value is a list: the tokens, and a marker that the chunk has an acl. A chunk without the
marker, such as every chunk stored before acls existed, has the vector DB's default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from corral.api.chunks import Chunk
from corral.api.errors import Forbidden, InvalidFilter, InvalidRequest
from corral.api.filters import Comparison, Compound, Filter, elements
from corral.api.principal import ACL_KEY, Principal, Role, check_acl

_GIVEN = "given"  # has no colon, so it is not a token

HAS_DEFAULT = Comparison("ne", ACL_KEY, _GIVEN)
"""Passes chunks without an acl of their own. Engines that negate slowly may special-case it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The permissions of one principal in one vector DB.

    Args:
        principal: The caller.
        default_acl: The acl of chunks without their own.
    """

    principal: Principal
    default_acl: Sequence[str]
    tokens: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        held = frozenset() if self.is_whole else self.principal.tokens()
        object.__setattr__(self, "tokens", held)

    @property
    def is_whole(self) -> bool:
        """True if nothing is hidden."""
        return self.principal.reads_all

    @property
    def sees_default(self) -> bool:
        """True if the scope includes chunks without an acl of their own."""
        return self.is_whole or not self.tokens.isdisjoint(self.default_acl)

    # --- reading -----------------------------------------------------------------------------

    def narrowed(self, filters: Filter | None) -> Filter | None:
        """Return a user's filter narrowed to the scope.

        Raises:
            InvalidFilter: The user's filter uses the reserved key.
        """
        if filters is not None:
            _check_filter(filters)
        visible = self.visible()
        if filters is None or visible is None:
            return filters if visible is None else visible
        return Compound("and", (visible, filters))

    def visible(self) -> Filter | None:
        """Return a filter for the chunks in the scope, None for all chunks."""
        if self.is_whole:
            return None
        held = Comparison("in", ACL_KEY, tuple(sorted(self.tokens)))
        return Compound("or", (held, HAS_DEFAULT)) if self.sees_default else held

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let `scope_of_call` return this scope to the engine methods called in this context."""
        token = _SCOPE.set(None if self.is_whole else self)
        try:
            yield
        finally:
            _SCOPE.reset(token)

    def sees(self, chunk: Chunk) -> bool:
        """Return True if a chunk, in its stored form, is in the scope."""
        if self.is_whole:
            return True
        held = frozenset(elements(chunk.metadata.get(ACL_KEY)))
        return not self.tokens.isdisjoint(held) or (self.sees_default and _GIVEN not in held)

    def shown(self, chunk: Chunk) -> Chunk:
        """Return a stored chunk as the caller sees it: with the acl as a field, for writers only.

        An acl names people and groups, so readers do not get it.
        """
        if ACL_KEY not in chunk.metadata:
            return chunk
        held = list(map(str, elements(chunk.metadata[ACL_KEY])))
        shows_acl = _GIVEN in held and self.principal.may(Role.WRITER)
        acl = [token for token in held if token != _GIVEN] if shows_acl else None
        metadata = {key: value for key, value in chunk.metadata.items() if key != ACL_KEY}
        return chunk.model_copy(update={"metadata": metadata, "acl": acl})

    # --- writing -----------------------------------------------------------------------------

    def check_writer(self) -> None:
        """Raise Forbidden unless the principal may write."""
        if not self.principal.may(Role.WRITER):
            raise Forbidden(
                f"Writing needs the role writer (yours is {self.principal.role}).",
                hint="Ask an admin for a key with this role.",
            )

    def check_acl(self, acl: Sequence[str] | None, *, field: str) -> list[str] | None:
        """Return an acl that the principal may give a chunk, in canonical form.

        Raises:
            InvalidRequest: The acl is malformed.
            Forbidden: The acl has a token that the principal does not hold, or would hide the
                chunk from its own writer.
        """
        try:
            given = None if acl is None else check_acl(acl)
        except ValueError as error:
            raise InvalidRequest(f"{field}: {error}.", field=field) from None
        if self.is_whole:
            return given
        held = self.sees_default if given is None else bool(given) and self.tokens.issuperset(given)
        if not held:
            what = "the vector DB's default acl" if given is None else f"the acl {given}"
            raise Forbidden(
                f"You do not have the tokens in {what}.",
                hint="Use tokens that you have, or ask an admin to write.",
                field=field,
            )
        return given

    def all_stored(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return the stored form of many chunks; errors as for `stored`.

        `chunks` may be a lazy sequence that builds each chunk when it is read. If no chunk changes,
        the sequence itself is returned, so that the chunks are never in memory all at once.
        """
        numbered = enumerate(chunks)
        if isinstance(chunks, list | tuple) or not self.sees_default:
            return [self.stored(chunk, f"chunks[{place}]") for place, chunk in numbered]
        if all(self.stored(chunk, f"chunks[{place}]") is chunk for place, chunk in numbered):
            return chunks
        return [self.stored(chunk, f"chunks[{place}]") for place, chunk in enumerate(chunks)]

    def stored(self, chunk: Chunk, place: str) -> Chunk:
        """Return the stored form of a chunk.

        Args:
            chunk: Not mutated.
            place: The chunk's path in the request, such as `chunks[0]`, for errors.

        Raises:
            InvalidRequest: Its metadata has the reserved key, or its acl is malformed.
            Forbidden: See `check_acl`.
        """
        check_metadata(chunk.metadata, field=f"{place}.metadata")
        if chunk.acl is None and self.sees_default:
            return chunk
        acl = self.check_acl(chunk.acl, field=f"{place}.acl")
        metadata = chunk.metadata if acl is None else {**chunk.metadata, ACL_KEY: [_GIVEN, *acl]}
        return chunk.model_copy(update={"metadata": metadata, "acl": None})


_SCOPE: ContextVar[Scope | None] = ContextVar("scope", default=None)


def scope_of_call() -> Scope | None:
    """Return the scope of the current call, None if no chunk is hidden.

    The filter passed to the engine already applies the scope. An engine can use this to enforce it
    a second time, such as PostgreSQL with row-level security.
    """
    return _SCOPE.get()


def links_of(chunk: Chunk) -> list[str]:
    """Return the ids of the adjacent chunks that a chunk's record names."""
    record = chunk.chunk_metadata
    named = (record.previous_chunk_id, record.next_chunk_id) if record else ()
    return [link for link in named if link is not None]


def linked(chunk: Chunk, visible_ids: Collection[str]) -> Chunk:
    """Return a chunk without the links to adjacent chunks that are not in `visible_ids`."""
    record = chunk.chunk_metadata
    if record is None or all(link in visible_ids for link in links_of(chunk)):
        return chunk
    beside = {
        name: link if link in visible_ids else None
        for name in ("previous_chunk_id", "next_chunk_id")
        for link in (getattr(record, name),)
    }
    return chunk.model_copy(update={"chunk_metadata": record.model_copy(update=beside)})


def check_metadata(metadata: Mapping[str, Any], *, field: str) -> None:
    """Raise InvalidRequest if metadata has the reserved key."""
    if ACL_KEY in metadata:
        raise InvalidRequest(
            f"{field}: the key {ACL_KEY!r} is reserved.",
            hint="Give the chunk an `acl` instead.",
            field=field,
        )


def _check_filter(filters: Filter) -> None:
    if isinstance(filters, Compound):
        for part in filters.filters:
            _check_filter(part)
    elif filters.key == ACL_KEY:
        raise InvalidFilter(
            f"The key {ACL_KEY!r} is reserved.",
            hint="Filter by your own metadata.",
            field="filters",
        )
