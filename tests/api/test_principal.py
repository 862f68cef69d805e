"""Principals: the tokens they hold, what their roles include, and what an acl may say."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
        {"user": "＊"},
        {"tenant": "acme\n"},
        {"groups": frozenset({"sales "})},
        {"user": "a\0b"},
        {"user": "\ud800"},
        {"user": "x" * (MAX_NAME_LENGTH + 1)},
        {"groups": frozenset(map(str, range(MAX_GROUPS + 1)))},
    ],
)
def test_a_name_that_could_pass_for_another_is_refused(names: dict[str, object]) -> None:
    """What `check_name` refuses, the group "", and too many groups are refused.

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
    [
        ["ann"], ["user:"], ["role:admin"], ["User:ann"], [""], ["user:a\0"], ["user:" + "x" * 256],
        ["tenant:*\n"], ["tenant: *"], ["user:*"], ["group:*"], ["tenant:\uff0a"], ["user:ann "],
        [" user:ann"], ["user:\tann"], ["group:the  sales"], ["group:the\u00a0sales"],
        ["user:ann\u200b"], ["user:a\u200dnn"], ["user:\u202eann"], ["user:a\u00adnn"],
        ["user:ann\ufeff"], ["user:\u3164"], ["user:\u2800"], ["user:1\ufe0f"], ["user:a\x85"],
        ["user:a\u2028b"], ["user:a\U000e0041"], ["user:Jose\u0301"], ["user:\ud800"],
        ["user:\u0627\u200c"],
    ],
)  # fmt: skip
def test_a_malformed_token_is_refused(acl: list[str]) -> None:
    """A token that no principal can hold is a mistake, not a secret.

    If this fails: somebody who writes `sales` for `group:sales` hides the chunk from everybody.
    """
    with pytest.raises(ValueError, match=r"token|name"):
        check_acl(acl)


@pytest.mark.parametrize(
    "name",
    [
        "José",
        "O'Brien, Ann",
        "ann@example.org",
        "天气 課",
        "\u0645\u06cc\u200c\u062e",
        "a:b/c*",
        "👩\u200d🚀",
    ],
)
def test_a_name_as_people_write_it_is_accepted(name: str) -> None:
    """Letters of every script, punctuation, single spaces, and joiners that change letters.

    If this fails: a user with such a name cannot sign in, or no acl can name them.
    """
    assert check_acl([f"user:{name}"]) == [f"user:{name}"]
    assert f"user:{name}" in Principal(user=name).tokens()


UNSEEN = "\0\t\n\r\x1c\x7f\x85\xa0 \u00ad\u061c\u200b\u200c\u200d\u200e"
UNSEEN += "\u2028\u2060\u2800\u3000\ufe0f\ufeff"


@given(st.text("ab*1éß天Я", max_size=5), st.text(UNSEEN, max_size=2), st.text("ab*", max_size=3))
@example("tenant:*", "\n", "")
@example("", " ", "*")
def test_no_two_names_differ_only_in_what_nobody_sees(name: str, unseen: str, end: str) -> None:
    """A name has no invisible character and single spaces inside, in a token and a principal.

    If this fails: `tenant:*` with a line break hides a chunk from everybody, or one person passes
    for another in a list of names.
    """
    for each in {name + end, name + unseen + end} - {""}:
        try:
            check_acl([f"group:{each}"])
        except ValueError:
            with pytest.raises(ValueError, match="name"):
                Principal(groups=frozenset({each}))
            continue
        assert f"group:{each}" in Principal(groups=frozenset({each})).tokens()
        assert not set(each) & (set(UNSEEN) - {" "})
        assert each.split(" ") == each.split()


def test_stored_names_are_not_checked_again() -> None:
    """A principal of Corral's own files keeps a name that an older version accepted.

    If this fails: one such key in state.db keeps every other from being read.
    """
    old = Principal.stored("acme\n", "ann ", frozenset({"*"}), Role.WRITER, "k")
    assert old.tokens() == {"tenant:acme\n", "user:ann ", "group:*", EVERYONE}
    assert Principal.stored("acme", role=Role.ADMIN) == Principal("acme", role=Role.ADMIN)


def test_an_acl_is_bounded() -> None:
    """More than `MAX_ACL` tokens are refused: the engine compares them all."""
    assert len(check_acl(f"user:{number}" for number in range(MAX_ACL))) == MAX_ACL
    with pytest.raises(ValueError, match="at most"):
        check_acl(f"user:{number}" for number in range(MAX_ACL + 1))
