"""Principals: the tokens they hold, what their roles include, and what an acl may say."""

from __future__ import annotations

import pytest

from corral.api.principal import (
    EVERYONE,
    MAX_ACL,
    MAX_GROUPS,
    MAX_NAME_LENGTH,
    UNRESTRICTED,
    Principal,
    Role,
    check_acl,
)


def test_a_principal_holds_the_tokens_of_its_user_groups_and_tenant() -> None:
    """Every name gives one token of its kind, and everybody holds `tenant:*`.

    If this fails: somebody reads what is not theirs, or does not find what is.
    """
    ann = Principal(tenant="acme", user="ann", groups=frozenset({"sales", "eu"}))
    assert ann.tokens() == {"user:ann", "group:sales", "group:eu", "tenant:acme", EVERYONE}
    assert Principal().tokens() == {EVERYONE}


def test_a_name_never_gives_a_token_of_another_kind() -> None:
    """A colon in a name stays in the name: the kind is what we write before it.

    If this fails: a user who is called `group:admins` reads what that group reads.
    """
    assert Principal(user="group:hr").tokens() == {"user:group:hr", EVERYONE}


@pytest.mark.parametrize(
    "names",
    [
        {"tenant": "*"},
        {"groups": frozenset({""})},
        {"user": "a\0b"},
        {"user": "\ud800"},
        {"user": "x" * (MAX_NAME_LENGTH + 1)},
        {"groups": frozenset(map(str, range(MAX_GROUPS + 1)))},
    ],
)
def test_a_name_that_could_pass_for_another_is_refused(names: dict[str, object]) -> None:
    """NUL, lone surrogates, "" and the tenant `*` are refused, and so are too many groups.

    If this fails: two names become one token in an engine, or one name everybody's.
    """
    with pytest.raises(ValueError, match=r"name|groups"):
        Principal(**names)  # type: ignore[arg-type]


def test_a_role_includes_those_before_it() -> None:
    """An admin may write and read, a writer may read, a reader only reads."""
    assert [[one.includes(other) for other in Role] for one in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_only_an_admin_reads_all() -> None:
    """No acl hides a chunk from an admin, and in process everything is visible."""
    assert [Principal(role=role).reads_all for role in Role] == [False, False, True]
    assert UNRESTRICTED.reads_all


def test_an_acl_is_stored_in_one_order_without_repetitions() -> None:
    """Equal acls are equal lists.

    If this fails: a chunk that is stored again with the same acl seems to have changed.
    """
    assert check_acl(["user:b", "group:a", "user:b"]) == ["group:a", "user:b"]
    assert check_acl([]) == []


@pytest.mark.parametrize(
    "acl",
    [["ann"], ["user:"], ["role:admin"], ["User:ann"], [""], ["user:a\0"], ["user:" + "x" * 256]],
)
def test_a_malformed_token_is_refused(acl: list[str]) -> None:
    """A token that no principal can hold is a mistake, not a secret.

    If this fails: somebody who writes `sales` for `group:sales` hides the chunk from everybody.
    """
    with pytest.raises(ValueError, match=r"token|name"):
        check_acl(acl)


def test_an_acl_is_bounded() -> None:
    """More than `MAX_ACL` tokens are refused: the engine compares them all."""
    assert len(check_acl(f"user:{number}" for number in range(MAX_ACL))) == MAX_ACL
    with pytest.raises(ValueError, match="at most"):
        check_acl(f"user:{number}" for number in range(MAX_ACL + 1))
