"""The scope: what a filter passes is what a principal sees, and acls come out as they went in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.api.chunks import Chunk
from corral.api.errors import Forbidden, InvalidFilter, InvalidRequest
from corral.api.filters import Comparison, Compound, Filter, matches
from corral.api.principal import ACL_KEY, UNRESTRICTED, Principal, Role
from corral.api.scope import Scope
from corral.api.vector_dbs import SearchSettings

TOKENS = ["user:a", "user:b", "group:g", "group:h", "tenant:t", "tenant:*"]
acls = st.none() | st.lists(st.sampled_from(TOKENS), max_size=4)
principals = st.builds(
    Principal,
    tenant=st.sampled_from(["", "t", "u"]),
    user=st.sampled_from(["", "a", "b"]),
    groups=st.frozensets(st.sampled_from(["g", "h"])),
    role=st.sampled_from(Role),
)
filters: st.SearchStrategy[Filter | None] = st.sampled_from(
    [
        None,
        Comparison("eq", "n", 1),
        Comparison("ne", "n", 1),
        Compound("or", (Comparison("eq", "n", 1), Comparison("ne", "n", 1))),
    ]
)


def may_read(who: Principal, acl: list[str] | None, default: list[str] | None) -> bool:
    """Return True if, by the words of the rule, a principal reads a chunk."""
    if who.role is Role.ADMIN:
        return True
    open_to = acl if acl is not None else (default or [])
    return any(
        token == "tenant:*"
        or (token == f"user:{who.user}" and who.user != "")
        or (token == f"tenant:{who.tenant}" and who.tenant != "")
        or any(token == f"group:{group}" for group in who.groups)
        for token in open_to
    )


@given(principals, acls, acls, filters, st.sampled_from([1, 2]))
def test_the_filter_of_a_scope_passes_what_is_seen(
    who: Principal,
    acl: list[str] | None,
    default: list[str] | None,
    passing: Filter | None,
    n: int,
) -> None:
    """A stored chunk passes if the principal reads it and the user's filter lets it pass.

    If this fails: one of the two says of a chunk what the other does not, and a hook leaks it.
    """
    stored = Scope(UNRESTRICTED, []).stored(Chunk(content="x", metadata={"n": n}, acl=acl), "c")
    scope = Scope(who, default or [])
    readable = may_read(who, acl, default)
    assert scope.sees(stored) == readable
    assert matches(scope.narrowed(passing), stored.metadata) == (
        readable and matches(passing, {"n": n})
    )


# A document_id holds no NUL.
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)


@given(acls, st.dictionaries(st.sampled_from(["n", "document_id", "acl"]), values))
def test_an_acl_comes_out_as_it_went_in(acl: list[str] | None, metadata: dict[str, str]) -> None:
    """Storing and showing a chunk gives the chunk, and leaves the one that was given alone."""
    chunk = Chunk(content="x", metadata=metadata, acl=acl)
    scope, before = Scope(UNRESTRICTED, []), chunk.model_copy(deep=True)
    stored = scope.stored(chunk, "c")
    assert chunk == before
    assert stored.acl is None
    assert (ACL_KEY in stored.metadata) == (acl is not None)
    assert scope.shown(stored) == chunk


def test_a_reader_is_not_told_who_else_reads() -> None:
    """An acl names people and groups: it comes back to writers and admins only."""
    stored = Scope(UNRESTRICTED, []).stored(Chunk(content="x", acl=["tenant:*", "user:b"]), "c")
    shown = {role: Scope(Principal(role=role), []).shown(stored).acl for role in Role}
    assert shown == {
        Role.READER: None,
        Role.WRITER: ["tenant:*", "user:b"],
        Role.ADMIN: ["tenant:*", "user:b"],
    }


@pytest.mark.parametrize("stored", ["given", ["given"], ["user:a"], None, [], {"given": 1}, 5, [1]])
def test_a_stored_acl_that_is_none_is_read_alike(stored: Any) -> None:
    """Whatever an engine holds under the key, the filter and the check agree on it.

    If this fails: an acl that somebody wrote past Corral is hidden by one and shown by the other.
    """
    chunk = Chunk.model_construct(content="x", chunk_id="c", metadata={ACL_KEY: stored}, acl=None)
    for default in ([], ["user:a"]):
        scope = Scope(Principal(user="a"), default)
        assert scope.sees(chunk) == matches(scope.visible(), chunk.metadata), default


@pytest.mark.parametrize("who", [UNRESTRICTED, Principal(user="a", role=Role.WRITER)])
def test_the_reserved_key_is_refused(who: Principal) -> None:
    """In metadata, in a filter at any depth, and as a field of keyword search.

    If this fails: a user sets or asks for acls past the rules.
    """
    scope = Scope(who, ["tenant:*"])
    with pytest.raises(InvalidRequest, match="reserved"):
        scope.stored(Chunk(content="x", metadata={ACL_KEY: "user:a"}), "chunks[0]")
    deep: Filter = Comparison("ne", ACL_KEY, "x")
    for _ in range(3):
        deep = Compound("or", (Comparison("eq", "n", 1), deep))
    with pytest.raises(InvalidFilter, match="reserved"):
        scope.narrowed(deep)
    with pytest.raises(ValueError, match="reserved"):
        SearchSettings(field_weights={"content": 1.0, ACL_KEY: 1.0})


def test_a_malformed_acl_of_an_unchecked_chunk_is_refused() -> None:
    """A chunk that was made without validation is checked before it is stored."""
    for acl in (["ann"], ["given"], ["user:"]):
        chunk = Chunk.model_construct(content="x", chunk_id="c", metadata={}, acl=acl)
        with pytest.raises(InvalidRequest, match="token"):
            Scope(UNRESTRICTED, []).stored(chunk, "chunks[0]")


@given(principals, acls, acls)
def test_who_writes_a_chunk_reads_it(
    who: Principal, acl: list[str] | None, default: list[str] | None
) -> None:
    """A writer gives tokens that it holds, one at least; a default must be open to it.

    If this fails: a writer plants a chunk in front of people it does not belong to.
    """
    scope = Scope(who, default or [])
    held = who.role is Role.ADMIN or (
        may_read(who, acl, default) and (acl is None or set(acl) <= who.tokens())
    )
    try:
        stored = scope.stored(Chunk(content="x", acl=acl), "c")
    except Forbidden:
        assert not held
    else:
        assert held
        assert scope.sees(stored)
