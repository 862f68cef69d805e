"""API keys, stored as hashes, and their holders."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, bindparam, insert, select, update

from corral.api.errors import Conflict, NotFound, ProviderError, Unauthenticated
from corral.api.principal import Principal, Role
from corral.providers.base.server_config import RateLimits
from corral.providers.state.state import AnyRow, State
from corral.providers.state.tables import KEYS

PREFIX = "corral_"
"""Prefix of every key, so that scanners for leaked secrets can detect it."""

USE_EVERY_SECONDS = 60.0
"""Resolution of `last_used_at` in seconds; otherwise each use of a key would cause a write."""

_FORM = re.compile(PREFIX + "([0-9a-f]{12})_[0-9a-f]{64}")
_NOBODYS = bytes(32)
_NEW = "an admin for a new one (`corral keys create NAME`)"
_ONE = select(KEYS).where(KEYS.c.key_id == bindparam("key_id"))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of an API key; times are Unix seconds. Only its holder has the key itself.

    Attributes:
        principal: The holder.
        limits: Rate limits; the server's limit applies in place of None.
        expires_at: Time of expiry; None if the key does not expire.
        revoked_at: Time of revocation; None if the key is not revoked.
        last_used_at: Time of the last use, accurate to about a minute; None if it was never used.
    """

    principal: Principal
    created_at: float
    limits: RateLimits = field(default_factory=RateLimits)
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    @property
    def key_id(self) -> str:
        """The key's public part."""
        return self.principal.key_id

    def state(self, now: float) -> str:
        """Return `revoked`, `expired` or `valid`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


class KeyStore:
    """The API keys of an installation, read for each request, so revocation takes effect at once.

    A key is `corral_`, a public id of 12 hex digits, and 256 random bits. Only its SHA-256 is
    stored: random bits cannot be guessed, so a slow hash would add no protection.

    Args:
        state: The tables.
        clock: Returns the time, in Unix seconds.
    """

    def __init__(self, state: State, clock: Callable[[], float] = time.time) -> None:
        self._keys = state.area("keys")
        self._clock = clock
        self._exist = False
        self._noted: dict[str, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def exist(self) -> bool:
        """Return True if any key was ever created, even if it has been revoked or has expired.

        Once it is True, it stays True until the process ends, even if the table is emptied.
        """
        if not self._exist:
            self._exist = bool(await self._keys.read(select(KEYS.c.key_id).limit(1)))
        return self._exist

    async def create(
        self,
        user: str,
        *,
        tenant: str = "",
        groups: frozenset[str] = frozenset(),
        role: Role = Role.READER,
        expires_in_seconds: float | None = None,
        limits: RateLimits | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key; return its record and the key itself, which cannot be read again.

        Raises:
            ValueError: The user is empty, or a name is not allowed; see `Principal`.
            ProviderError: The state cannot be written.
        """
        if not user:
            raise ValueError("a key needs the name of a user")
        key_id, now = secrets.token_hex(6), self._clock()
        secret = f"{PREFIX}{key_id}_{secrets.token_hex(32)}"
        expires = None if expires_in_seconds is None else now + expires_in_seconds
        principal = Principal(tenant, user, groups, role, key_id)
        key = ApiKey(principal, now, limits or RateLimits(), expires)

        row = {
            "key_id": key_id,
            "sha256": _digest(secret),
            "tenant": tenant,
            "user": user,
            "groups": json.dumps(sorted(groups)),
            "role": role.value,
            "limits": key.limits.model_dump_json(),
            "created_at": now,
            "expires_at": expires,
        }
        await self._keys.write(lambda keys: keys.execute(insert(KEYS), row))
        return key, secret

    async def all(self) -> list[ApiKey]:
        """Return all keys, oldest first."""
        rows = await self._keys.read(select(KEYS).order_by(KEYS.c.created_at, KEYS.c.key_id))
        return [_key(row) for row in rows]

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key and return its record.

        Raises:
            NotFound: No key has this id.
            Conflict: The key is already revoked.
        """
        now = self._clock()

        def revoke(keys: Connection) -> ApiKey:
            row = keys.execute(_ONE, {"key_id": key_id}).one_or_none()
            if row is None:
                raise NotFound(
                    f"There is no key {key_id!r}.",
                    hint="`corral keys list` shows the ids.",
                    field="key_id",
                )
            if row.revoked_at is not None:
                raise Conflict(f"Key {key_id} is already revoked.", field="key_id")
            keys.execute(update(KEYS).where(KEYS.c.key_id == key_id).values(revoked_at=now))
            return replace(_key(row), revoked_at=now)

        return await self._keys.write(revoke)

    async def holder(self, secret: str) -> ApiKey:
        """Return the record of a key.

        Only the holder of a real key learns from the error that it is expired or revoked.

        Raises:
            Unauthenticated: The key is unknown, expired or revoked.
        """
        form = _FORM.fullmatch(secret)
        rows = await self._keys.read(_ONE.params(key_id=form[1])) if form else []
        stored: bytes = rows[0].sha256 if rows else _NOBODYS
        if not hmac.compare_digest(_digest(secret), stored):
            raise Unauthenticated(
                "The API key is not valid.",
                hint=f"Check that you copied all of it, or ask {_NEW}.",
            )
        key = _key(rows[0])
        state = key.state(self._clock())
        if state != "valid":
            raise Unauthenticated(f"The API key {key.key_id} is {state}.", hint=f"Ask {_NEW}.")
        self._note_use(key.key_id)
        return key

    async def close(self) -> None:
        """Wait until all uses of keys are recorded."""
        await asyncio.gather(*self._writing)

    # --- inside ------------------------------------------------------------------------------

    def _note_use(self, key_id: str) -> None:
        """Record the use of a key in the background, at most every `USE_EVERY_SECONDS`."""
        now = self._clock()
        if now < self._noted.get(key_id, -USE_EVERY_SECONDS) + USE_EVERY_SECONDS:
            return
        self._noted[key_id] = now
        task = asyncio.create_task(self._write_use(key_id, now))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_use(self, key_id: str, now: float) -> None:
        used = update(KEYS).where(KEYS.c.key_id == key_id).values(last_used_at=now)
        with suppress(ProviderError):  # If the table stays locked, a later use is recorded.
            await self._keys.write(lambda keys: keys.execute(used), durable=False)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _key(row: AnyRow) -> ApiKey:
    groups, role = frozenset(json.loads(row.groups)), Role(row.role)
    principal = Principal.stored(row.tenant, row.user, groups, role, row.key_id)
    limits = RateLimits.model_validate_json(row.limits)
    return ApiKey(
        principal, row.created_at, limits, row.expires_at, row.revoked_at, row.last_used_at
    )
