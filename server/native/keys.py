"""API keys over HTTP, for the operator: create, list, revoke. `corral keys` does the same."""

from __future__ import annotations

import time
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from corral.api.errors import InvalidRequest
from corral.api.principal import MAX_GROUPS, MAX_NAME_LENGTH, Role
from corral.api.wire import Strict
from corral.providers.base.server_config import RateLimits
from corral.providers.state.keys import ApiKey, KeyStore
from corral.server.access.gate import Access
from corral.server.access.roles import OPERATOR
from corral.server.errors import ERRORS
from corral.server.routing import NotFoundRoute

router = APIRouter(
    prefix="/v1/keys",
    tags=["Keys"],
    route_class=NotFoundRoute,
    responses=ERRORS,
    dependencies=[OPERATOR],
)

DAY_SECONDS = 86_400.0

Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]


class CreateKey(Strict):
    """A key to create."""

    user: Name = Field(min_length=1, description="Who holds it.")
    role: Role = Role.READER
    tenant: Name = Field(default="", description="Empty: the default tenant.")
    groups: list[Name] = Field(default_factory=list, max_length=MAX_GROUPS)
    expires_in_days: float | None = Field(
        default=None, gt=0, le=36_500, description="null: it never expires."
    )
    limits: RateLimits = Field(
        default_factory=RateLimits, description="null: `server.rate_limits`."
    )


class KeyInfo(BaseModel):
    """An API key without its secret; times are Unix seconds."""

    key_id: str
    user: str
    role: Role
    tenant: str
    groups: list[str]
    state: str = Field(description="valid, expired or revoked.")
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None = Field(description="Accurate to a minute; null: never used.")
    limits: RateLimits

    @classmethod
    def of(cls, key: ApiKey) -> KeyInfo:
        """Return a key's representation on the wire."""
        return cls(**_fields(key))


class CreatedKey(KeyInfo):
    """A new API key."""

    key: str = Field(description="The key itself. Only its hash is stored: it is not shown again.")


class KeyList(BaseModel):
    """All keys, the oldest first."""

    data: list[KeyInfo]


def _keys(request: Request) -> KeyStore:
    return cast(Access, request.app.state.access).callers.keys


KeysOf = Annotated[KeyStore, Depends(_keys)]


@router.get("", summary="List the keys")
async def list_all(keys: KeysOf) -> KeyList:
    """Return all keys, revoked and expired ones too."""
    return KeyList(data=[KeyInfo.of(each) for each in await keys.all()])


@router.post("", summary="Create a key")
async def create(request: CreateKey, keys: KeysOf) -> CreatedKey:
    """Create a key. The first one switches authentication on for every request that follows."""
    days = request.expires_in_days
    try:
        key, secret = await keys.create(
            request.user,
            tenant=request.tenant,
            groups=frozenset(request.groups),
            role=request.role,
            expires_in_seconds=None if days is None else days * DAY_SECONDS,
            limits=request.limits,
        )
    except ValueError as error:
        raise InvalidRequest(f"Cannot create the key: {error}.", field="user") from None
    return CreatedKey(**_fields(key), key=secret)


@router.post("/{key_id}/revoke", summary="Revoke a key")
async def revoke(
    key_id: Annotated[str, Path(description="The public part of the key.")], keys: KeysOf
) -> KeyInfo:
    """Revoke a key: from the next request on, it is refused."""
    return KeyInfo.of(await keys.revoke(key_id))


def _fields(key: ApiKey) -> dict[str, object]:
    who = key.principal
    return {
        "key_id": key.key_id,
        "user": who.user,
        "role": who.role,
        "tenant": who.tenant,
        "groups": sorted(who.groups),
        "state": key.state(time.time()),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
        "limits": key.limits,
    }
