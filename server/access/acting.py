"""Questions on behalf of another user, for admins who check permissions."""

from __future__ import annotations

from pydantic import Field

from corral.api.errors import Forbidden, InvalidRequest
from corral.api.principal import MAX_GROUPS, MAX_NAME_LENGTH, Principal
from corral.api.wire import Strict
from corral.providers.stack.stack import Stack


class AsUser(Strict):
    """A user of the caller's tenant, who need not exist."""

    user: str = Field(default="", max_length=MAX_NAME_LENGTH, description="Empty: no user.")
    groups: list[str] = Field(
        default_factory=list, max_length=MAX_GROUPS, description="The user's groups."
    )


def acting(stack: Stack, as_user: AsUser | None) -> Stack:
    """Return a reader's view of the stack for another user; the same view for None.

    Raises:
        Forbidden: The caller is not an admin.
        InvalidRequest: A name is not allowed.
    """
    if as_user is None:
        return stack
    caller = stack.principal
    if not caller.reads_all:
        raise Forbidden(
            f"as_user needs the role admin (yours is {caller.role}).",
            hint="Leave as_user out.",
        )
    try:
        principal = Principal(caller.tenant, as_user.user, frozenset(as_user.groups))
    except ValueError as error:
        raise InvalidRequest(f"as_user: {error}.", field="as_user") from None
    return stack.for_principal(principal)
