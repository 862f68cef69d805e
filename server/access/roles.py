"""Roles: each route declares its required role, which is checked before its body is read.

    @router.post("/query", dependencies=[READER])

A route that declares no role needs a reader for GET and a writer for other methods.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.params import Depends as Dependency
from fastapi.security import HTTPBearer
from starlette.types import Scope

from corral.api.errors import Forbidden, Unauthenticated
from corral.api.principal import Principal, Role

PRINCIPAL = "corral.principal"
"""The gate stores a request's principal in its scope under this key; public routes have none."""

_BEARER = HTTPBearer(auto_error=False, description="An API key, or a token of the issuer.")


class Needs:
    """A dependency that refuses callers who may not use a route.

    Args:
        role: Minimum role; None for a route that needs no key.
        operator: True if only the default tenant may call it, because it affects all tenants.
    """

    def __init__(self, role: Role | None, *, operator: bool = False) -> None:
        self._role, self._operator = role, operator

    @property
    def name(self) -> str:
        """The requirement's name in the documentation."""
        if self._role is None:
            return "public"
        if self._operator:
            return "operator" if self._role is Role.ADMIN else f"{self._role}, default tenant"
        return self._role.value

    def includes(self, principal: Principal) -> bool:
        """Return True if a principal may use the route."""
        if self._role is None:
            return True
        return principal.may(self._role) and not (self._operator and principal.tenant)

    def check(self, scope: Scope) -> None:
        """Refuse a request if its principal lacks the role.

        Raises:
            Unauthenticated: There is no principal.
            Forbidden: Its role does not include this one, or its tenant is not the operator's.
        """
        if self._role is None:
            return
        principal = principal_of(scope)
        if not self.includes(principal):
            without = " without a tenant" if self._operator else ""
            raise Forbidden(
                f"This needs the role {self._role}{without} (yours is {principal.role}).",
                hint=f"`corral keys create NAME --role {self._role}` creates such a key.",
            )

    async def __call__(
        self, request: Request, _: Annotated[object, Security(_BEARER)] = None
    ) -> None:
        """Check a request; the bearer parameter only documents the key in OpenAPI."""
        self.check(request.scope)


class Public(Needs):
    """A dependency for a route that needs no key."""

    def __init__(self) -> None:
        super().__init__(None)

    async def __call__(  # type: ignore[override]  # with it, FastAPI documents a key
        self, request: Request
    ) -> None:
        """Do nothing."""


PUBLIC = Depends(Public())
READER = Depends(Needs(Role.READER))
WRITER = Depends(Needs(Role.WRITER))
ADMIN = Depends(Needs(Role.ADMIN))
OPERATOR = Depends(Needs(Role.ADMIN, operator=True))


def principal_of(scope: Scope) -> Principal:
    """Return the principal of a request.

    Raises:
        Unauthenticated: The request has none.
    """
    principal = scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthenticated("This needs an API key.", hint="Send an API key.")
    return cast(Principal, principal)


def declared(dependencies: Sequence[Dependency]) -> Needs | None:
    """Return the `Needs` among a route's dependencies, None if there is none."""
    needs = [d.dependency for d in dependencies if isinstance(d.dependency, Needs)]
    return needs[-1] if needs else None


def with_needs(
    dependencies: Sequence[Dependency], methods: Collection[str] | None
) -> tuple[Needs, list[Dependency]]:
    """Return the `Needs` of a route, declared or by its methods, and all its dependencies."""
    if (needs := declared(dependencies)) is not None:
        return needs, list(dependencies)
    reads = {method.upper() for method in methods or ("GET",)} <= {"GET", "HEAD"}
    default = Needs(Role.READER if reads else Role.WRITER)
    return default, [*dependencies, Depends(default)]
