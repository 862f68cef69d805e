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
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from corral.api.errors import Conflict, NotFound, ProviderError, Unauthenticated
from corral.api.principal import Principal, Role
from corral.providers.base.database import Database, Schema
from corral.providers.base.server_config import RateLimits

KEYS_NAME = "keys.db"
PREFIX = "corral_"
"""Prefix of every key, so that scanners for leaked secrets can detect it."""

USE_EVERY_SECONDS = 60.0
"""Resolution of `last_used_at`, in seconds, so that not every use of a key causes a write."""

_FORM = re.compile(PREFIX + "([0-9a-f]{12})_[0-9a-f]{64}")
_NOBODYS = bytes(32)
_NEW = "an admin for a new one (`corral keys create NAME`)"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS keys"
    " (key_id TEXT PRIMARY KEY, sha256 BLOB NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL,"
    " groups TEXT NOT NULL, role TEXT NOT NULL, limits TEXT NOT NULL, created_at REAL NOT NULL,"
    " expires_at REAL, revoked_at REAL, last_used_at REAL) STRICT",
)
TABLES = Schema(_SCHEMA)
_COLUMNS = (
    "key_id, tenant, user, groups, role, limits, created_at, expires_at, revoked_at, last_used_at"
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of an API key; times are Unix seconds. Only its holder has the key itself.

    Attributes:
        principal: The holder.
        limits: Rate limits; a limit of None is the server's.
        expires_at: Time of expiry; None: never.
        revoked_at: Time of revocation; None: not revoked.
        last_used_at: Last use, accurate to about a minute; None: never used.
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
    """The API keys of a data folder, read for each request, so that revocation works at once.

    A key is `corral_`, a public id of 12 hex digits, and 256 random bits. Only its SHA-256 is
    stored: random bits cannot be guessed, so a slow hash would add no protection.

    Args:
        home: The data folder. The first key creates the file.
        clock: Returns the time, in Unix seconds.
    """

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        remedy = "Restore it from a backup, or move it away and create new keys."
        self._file = Database(home / KEYS_NAME, TABLES, remedy=remedy)
        self._clock = clock
        self._exist = False
        self._noted: dict[str, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def exist(self) -> bool:
        """Return True if any key was ever created, even if it is revoked or expired.

        Once True, the answer stays True until the process ends, whatever happens to the file.
        """
        if not self._exist and self._file.path.exists():
            self._exist = bool(await self._file.read("SELECT 1 FROM keys LIMIT 1"))
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
            ValueError: A name is not allowed; see `Principal`.
            ProviderError: The file cannot be written.
        """
        if not user:
            raise ValueError("a key needs the name of a user")
        self._file.path.parent.mkdir(parents=True, exist_ok=True)
        self._file.path.touch(mode=0o600)
        key_id, now = secrets.token_hex(6), self._clock()
        secret = f"{PREFIX}{key_id}_{secrets.token_hex(32)}"
        expires = None if expires_in_seconds is None else now + expires_in_seconds
        principal = Principal(tenant, user, groups, role, key_id)
        key = ApiKey(principal, now, limits or RateLimits(), expires)

        def insert(file: apsw.Connection) -> None:
            row = (
                key_id, _digest(secret), tenant, user, json.dumps(sorted(groups)), role.value,
                key.limits.model_dump_json(), now, expires, None, None,
            )  # fmt: skip
            file.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

        await self._file.write(insert)
        return key, secret

    async def all(self) -> list[ApiKey]:
        """Return every key, the oldest first."""
        if not self._file.path.exists():
            return []
        query = f"SELECT {_COLUMNS} FROM keys ORDER BY created_at, key_id"  # noqa: S608 - a constant
        rows = await self._file.read(query)
        return [_key(*row) for row in rows]

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key and return its record.

        Raises:
            NotFound: No key has this id.
            Conflict: The key is already revoked.
        """
        known = {key.key_id: key for key in await self.all()}
        if key_id not in known:
            raise NotFound(
                f"There is no key {key_id!r}.",
                hint="`corral keys list` shows the ids.",
                field="key_id",
            )
        if known[key_id].revoked_at is not None:
            raise Conflict(f"Key {key_id} is already revoked.", field="key_id")
        query, row = "UPDATE keys SET revoked_at = ? WHERE key_id = ?", (self._clock(), key_id)
        await self._file.write(lambda file: file.execute(query, row))
        return {key.key_id: key for key in await self.all()}[key_id]

    async def holder(self, secret: str) -> ApiKey:
        """Return the record of a key.

        The error tells only the holder of a real key that it is expired or revoked.

        Raises:
            Unauthenticated: The key is unknown, expired or revoked.
        """
        form = _FORM.fullmatch(secret)
        query = f"SELECT {_COLUMNS}, sha256 FROM keys WHERE key_id = ?"  # noqa: S608 - a constant
        rows = await self._file.read(query, form[1] if form else "")
        stored: bytes = rows[0][-1] if rows else _NOBODYS
        if not hmac.compare_digest(_digest(secret), stored):
            raise Unauthenticated(
                "The API key is not valid.",
                hint=f"Check that you copied all of it, or ask {_NEW}.",
            )
        key = _key(*rows[0][:-1])
        state = key.state(self._clock())
        if state != "valid":
            raise Unauthenticated(f"The API key {key.key_id} is {state}.", hint=f"Ask {_NEW}.")
        self._note_use(key.key_id)
        return key

    async def close(self) -> None:
        """Close the file after the running calls."""
        await asyncio.gather(*self._writing)
        await self._file.close()

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
        query = "UPDATE keys SET last_used_at = ? WHERE key_id = ?"
        with suppress(ProviderError):  # the file may stay locked; a later use is recorded
            await self._file.write(lambda file: file.execute(query, (now, key_id)))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _key(
    key_id: str,
    tenant: str,
    user: str,
    groups: str,
    role: str,
    limits: str,
    created_at: float,
    expires_at: float | None,
    revoked_at: float | None,
    last_used_at: float | None,
) -> ApiKey:
    principal = Principal.stored(tenant, user, frozenset(json.loads(groups)), Role(role), key_id)
    allowed = RateLimits.model_validate_json(limits)
    return ApiKey(principal, created_at, allowed, expires_at, revoked_at, last_used_at)
