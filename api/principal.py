"""Principals: the callers of an index, and the tokens that let them read chunks.

A chunk's `acl` is a list of tokens, such as `group:sales`. A principal reads a chunk if it holds
one of them; an admin reads every chunk. Only `EmbeddingIndex` enforces this.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from corral.api.invisible import JOINERS, STYLES, clean_text

TOKEN_KINDS = ("user", "group", "tenant")

MAX_NAME_LENGTH = 255
"""Maximum length of the name of a user, group or tenant, in characters."""

EVERYONE = "tenant:*"
"""The token that every principal holds."""

ACL_KEY = "corral:acl"
"""The metadata key of a stored chunk's acl; `scope.py` adds and removes it. A user's metadata,
filters and field weights must not name it."""

MAX_ACL = 64
"""Maximum tokens in the acl of one chunk."""
MAX_GROUPS = 500
"""Maximum groups of a principal: its tokens become one comparison of a filter."""


class Role(StrEnum):
    """The permissions of a principal; each role includes the role before it."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Return True if this role has all permissions of the other."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of an index: a user or program with a role.

    Args:
        tenant: The organization, "" for none. Data of another tenant does not exist for this
            principal; within its own tenant, the acl decides.
        user: The person or program, "" for none.
        groups: The user's groups, at most `MAX_GROUPS`.
        role: reader, writer or admin. An admin reads every chunk of its tenant, whatever its acl.
        key_id: Id of the API key of the request, for the audit log; "" for none.

    Raises:
        ValueError: `check_name` rejects a name, a group is "", or there are too many groups.
    """

    tenant: str = ""
    user: str = ""
    groups: frozenset[str] = field(default_factory=frozenset)
    role: Role = Role.READER
    key_id: str = ""

    def __post_init__(self) -> None:
        for name in (self.tenant, self.user, *self.groups):
            check_name(name)
        if "" in self.groups:
            raise ValueError("a group must have a name")
        if len(self.groups) > MAX_GROUPS:
            raise ValueError(f"a principal has at most {MAX_GROUPS} groups, got {len(self.groups)}")

    @classmethod
    def stored(
        cls,
        tenant: str,
        user: str = "",
        groups: frozenset[str] = frozenset(),
        role: Role = Role.READER,
        key_id: str = "",
    ) -> Self:
        """Return a principal from Corral's own files, without checking its names.

        An older version accepted names that `check_name` now rejects; their tokens stay valid.
        """
        principal = object.__new__(cls)
        for name, value in zip(cls.__slots__, (tenant, user, groups, role, key_id), strict=True):
            object.__setattr__(principal, name, value)
        return principal

    def tokens(self) -> frozenset[str]:
        """Return its tokens: one each for the user, groups and tenant, and `tenant:*`."""
        held = {f"group:{name}" for name in self.groups} | {EVERYONE}
        held |= {f"user:{self.user}"} if self.user else set()
        held |= {f"tenant:{self.tenant}"} if self.tenant else set()
        return frozenset(held)

    @property
    def reads_all(self) -> bool:
        """True if no acl hides a chunk from it."""
        return self.role is Role.ADMIN

    @property
    def is_operator(self) -> bool:
        """True for an admin of the default tenant, who sees data shared by all tenants."""
        return not self.tenant and self.role is Role.ADMIN

    def may(self, role: Role) -> bool:
        """Return True if its role includes another."""
        return self.role.includes(role)


def check_acl(tokens: Iterable[str]) -> list[str]:
    """Return an acl in canonical form: each token once, in ascending order.

    Raises:
        ValueError: A token is none of `user:NAME`, `group:NAME`, `tenant:NAME` and `tenant:*`,
            `check_name` rejects its name, or there are more than `MAX_ACL`.
    """
    acl = sorted(set(tokens))
    for token in acl:
        kind, _, name = token.partition(":")
        if kind not in TOKEN_KINDS or not name:
            raise ValueError(
                f"an acl token is user:NAME, group:NAME, tenant:NAME or tenant:*, got {token!a}"
            )
        if token != EVERYONE:
            try:
                check_name(name)
            except ValueError as error:
                raise ValueError(f"{error}, in the acl token {token!a}") from None
    if len(acl) > MAX_ACL:
        raise ValueError(f"an acl has at most {MAX_ACL} tokens, got {len(acl)}")
    return acl


_HIDDEN = re.compile(f"[{STYLES}\u2800]|[{JOINERS}]$")
"""Characters that `clean_text` keeps, but that can make two names look the same."""


def check_name(name: str) -> None:
    """Raise ValueError if a name is not allowed for a user, a group or a tenant.

    Names are compared character by character, so names that look the same must be the same. A name
    has at most `MAX_NAME_LENGTH` characters, none of them invisible, single plain spaces between
    words only, and Unicode's form NFC; "*" is not a name. Joiners inside words of Arabic and Indic
    scripts and between emoji stay allowed, as in `clean_text`, and so do letters of different
    scripts that look alike.
    """
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"a name has at most {MAX_NAME_LENGTH} characters, got {len(name)}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError("a name must be valid Unicode")
    if " ".join(name.split()) != name or clean_text(name) != name or _HIDDEN.search(name):
        raise ValueError(
            "a name must not have control or invisible characters, spaces at its ends, or other "
            "spaces than single plain ones"
        )
    if not unicodedata.is_normalized("NFC", name):
        raise ValueError("a name must be in Unicode's form NFC")
    if unicodedata.normalize("NFKC", name) == "*":
        raise ValueError("a name must not be '*'; everybody is tenant:*")


UNRESTRICTED = Principal(role=Role.ADMIN)
"""The principal of calls in process, on the local command line, and under `server.auth: none`."""
