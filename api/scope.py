"""The scope of a principal in one vector DB: which chunks it sees, and which it may write.

An acl is stored in the chunk's metadata under a key of its own, so that every engine keeps it and
filters by it as by any other key: no provider has code for it. This module puts it in and takes it
out; `EmbeddingIndex` calls it in its public methods and nobody else does.

Stored is a list: the tokens, and the mark that there is an acl. A chunk without the mark, which
each chunk is that was stored before there were acls, has the vector DB's default.
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
"""Passes chunks without an acl of their own. An engine that is slow to negate may know it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What one principal may do in one vector DB.

    Args:
        principal: Who asks.
        default_acl: The vector DB's, for chunks without an acl of their own.
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
        """True if chunks without an acl of their own are in it."""
        return self.is_whole or not self.tokens.isdisjoint(self.default_acl)

    # --- reading -----------------------------------------------------------------------------

    def narrowed(self, filters: Filter | None) -> Filter | None:
        """Return the filter that passes what a user's filter passes, within the scope.

        Raises:
            InvalidFilter: The user's filter names the reserved key.
        """
        if filters is not None:
            _check_filter(filters)
        seen = self.visible()
        if filters is None or seen is None:
            return filters if seen is None else seen
        return Compound("and", (seen, filters))

    def visible(self) -> Filter | None:
        """Return the filter that passes the chunks in the scope, None for all."""
        if self.is_whole:
            return None
        held = Comparison("in", ACL_KEY, tuple(sorted(self.tokens)))
        return Compound("or", (held, HAS_DEFAULT)) if self.sees_default else held

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let `scope_of_call` return this scope to the hooks that are called inside."""
        token = _SCOPE.set(None if self.is_whole else self)
        try:
            yield
        finally:
            _SCOPE.reset(token)

    def sees(self, chunk: Chunk) -> bool:
        """Return True if a chunk, as an engine holds it, is in the scope."""
        if self.is_whole:
            return True
        held = frozenset(elements(chunk.metadata.get(ACL_KEY)))
        return not self.tokens.isdisjoint(held) or (self.sees_default and _GIVEN not in held)

    def shown(self, chunk: Chunk) -> Chunk:
        """Return a chunk of an engine as its user sees it: the acl is a field, for writers only.

        An acl names people and groups, which is nothing for readers.
        """
        if ACL_KEY not in chunk.metadata:
            return chunk
        held = list(map(str, elements(chunk.metadata[ACL_KEY])))
        told = _GIVEN in held and self.principal.may(Role.WRITER)
        acl = [token for token in held if token != _GIVEN] if told else None
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
            InvalidRequest: It is malformed.
            Forbidden: It holds a token that the principal does not, or would hide the chunk from
                its own writer.
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
        """Return chunks as `stored` does; errors as there.

        Many chunks may come as a sequence that makes each as it is read. Where none changes, they
        are not held together.
        """
        numbered = enumerate(chunks)
        if isinstance(chunks, list | tuple) or not self.sees_default:
            return [self.stored(chunk, f"chunks[{place}]") for place, chunk in numbered]
        if all(self.stored(chunk, f"chunks[{place}]") is chunk for place, chunk in numbered):
            return chunks
        return [self.stored(chunk, f"chunks[{place}]") for place, chunk in enumerate(chunks)]

    def stored(self, chunk: Chunk, place: str) -> Chunk:
        """Return a chunk as an engine is to hold it.

        Args:
            chunk: Not mutated.
            place: What it is called in the request, for errors.

        Raises:
            InvalidRequest: Its metadata has the reserved key, or its acl is malformed.
            Forbidden: As `check_acl` says.
        """
        check_metadata(chunk.metadata, field=f"{place}.metadata")
        if chunk.acl is None and self.sees_default:
            return chunk
        acl = self.check_acl(chunk.acl, field=f"{place}.acl")
        metadata = chunk.metadata if acl is None else {**chunk.metadata, ACL_KEY: [_GIVEN, *acl]}
        return chunk.model_copy(update={"metadata": metadata, "acl": None})


_SCOPE: ContextVar[Scope | None] = ContextVar("scope", default=None)


def scope_of_call() -> Scope | None:
    """Return the scope of the call that a reading hook serves, None where nothing is hidden.

    For engines that can apply it a second time, as PostgreSQL by row-level security. The filter
    that the hook gets applies it already.
    """
    return _SCOPE.get()


def links_of(chunk: Chunk) -> list[str]:
    """Return the ids of the chunks beside a chunk, as far as its record names them."""
    record = chunk.chunk_metadata
    named = (record.previous_chunk_id, record.next_chunk_id) if record else ()
    return [link for link in named if link is not None]


def linked(chunk: Chunk, known: Collection[str]) -> Chunk:
    """Return a chunk whose record names no chunk beside it but these."""
    record = chunk.chunk_metadata
    if record is None or all(link in known for link in links_of(chunk)):
        return chunk
    beside = {
        name: link if link in known else None
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
