"""Authentication by signed tokens of an OpenID Connect issuer."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import httpx
from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import Key, KeySet, OctKey
from pydantic import BaseModel

from corral.api.errors import CorralError, Forbidden, Unauthenticated, Unavailable
from corral.api.principal import Principal, Role
from corral.providers.base.server_config import OidcAuth, SafeUrl

FRESH_SECONDS = 300.0
"""Time before the issuer's keys are read again; a withdrawn key is valid until then."""
AGAIN_SECONDS = 10.0
"""Pause before the keys are read again for an unknown key, or after a failure, so that tokens with
made-up keys cause no load on the issuer."""
STALE_SECONDS = 3600.0
"""Time for which old keys stay valid while the issuer cannot be reached."""
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 1024 * 1024
MAX_TOKEN_LENGTH = 16 * 1024


_LOG = logging.getLogger("corral.server")


class _Discovery(BaseModel):
    issuer: str
    jwks_uri: SafeUrl


class Issuer:
    """Turns tokens into principals, with the issuer's current public keys.

    Args:
        settings: `server.auth.oidc`.
        clock: Returns the time in Unix seconds.
    """

    def __init__(self, settings: OidcAuth, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = _Keys(settings, clock)
        self._claims = jwt.JWTClaimsRegistry(
            now=lambda: int(clock()),
            leeway=settings.clock_skew_seconds,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        )

    async def principal(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            Unauthenticated: The token is not signed by the issuer, is for another server, is not
                valid now, or does not name the user.
            Forbidden: None of the token's groups has a role here.
            Unavailable: The issuer's keys cannot be read.
        """
        claims = await self._verified(token)
        groups = frozenset(_names(_claim(claims, self._settings.groups_claim)))
        try:
            return Principal(
                tenant=self._tenant(claims),
                user=_name(claims, self._settings.user_claim),
                groups=groups,
                role=self._role(groups),
            )
        except ValueError as error:
            raise _refused(f"its claims cannot be used: {error}") from None

    async def close(self) -> None:
        """Close the connections to the issuer."""
        await self._keys.close()

    async def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that the issuer has signed for this server."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise _refused("it is too long")
        try:
            header = jws.extract_compact(token.encode()).headers()
            key = await self._keys.find(header.get("kid"), str(header.get("alg")))
            claims = jwt.decode(token, key, algorithms=self._settings.algorithms).claims
            self._claims.validate(claims)
        except CorralError:
            raise
        except ExpiredTokenError:
            raise _refused("it has expired") from None
        except Exception as error:  # noqa: BLE001 - joserfc raises many types for a bad token
            raise _refused(type(error).__name__) from None  # the message may quote it
        return dict(claims)

    def _tenant(self, claims: dict[str, Any]) -> str:
        """Return the tenant; a token without the claim never gets into the default tenant."""
        if self._settings.tenant_claim is None:
            return self._settings.tenant
        return _name(claims, self._settings.tenant_claim)

    def _role(self, groups: frozenset[str]) -> Role:
        given = [role for group, role in self._settings.roles.items() if group in groups]
        default = self._settings.default_role
        if not given and default is None:
            raise Forbidden(
                "No group of the token has a role here.",
                hint="The operator's setting is server.auth.oidc.roles.",
            )
        order = list(Role)
        return max([*given, *([default] if default else [])], key=order.index)


class _Keys:
    """The issuer's public keys, read on demand."""

    def __init__(self, settings: OidcAuth, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._http = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False)
        self._reading = asyncio.Lock()
        self._keys: list[Key] = []
        self._read_at = self._tried_at = float("-inf")

    async def find(self, key_id: object, algorithm: str) -> Key:
        """Return the key that a token names, or the only key for a token that names none.

        Raises:
            Unauthenticated: The key does not exist, or has another purpose.
            Unavailable: The keys cannot be read.
        """
        if algorithm not in self._settings.algorithms:
            raise _refused("its algorithm is not accepted")
        keys = self._named(key_id, algorithm)
        if not keys or not self._are_younger_than(FRESH_SECONDS):
            async with self._reading:
                keys = await self._sought(key_id, algorithm)
        if len(keys) != 1:
            raise _refused("the issuer has no such key")
        return keys[0]

    async def close(self) -> None:
        await self._http.aclose()

    async def _sought(self, key_id: object, algorithm: str) -> list[Key]:
        """Return the matching keys, after reading them again if that is due."""
        keys = self._named(key_id, algorithm)
        wanted = not keys or not self._are_younger_than(FRESH_SECONDS)
        if wanted and self._clock() >= self._tried_at + AGAIN_SECONDS:
            await self._read()
            keys = self._named(key_id, algorithm)
        if not self._are_younger_than(STALE_SECONDS):
            raise Unavailable(
                "The token issuer's keys cannot be read.",
                hint="Try again later; the server's log says why.",
            )
        return keys

    def _named(self, key_id: object, algorithm: str) -> list[Key]:
        return [
            key
            for key in self._keys
            if key_id in (None, key.get("kid")) and key.get("alg", algorithm) == algorithm
        ]

    def _are_younger_than(self, seconds: float) -> bool:
        return self._clock() < self._read_at + seconds

    async def _read(self) -> None:
        """Read the keys; after a failure, keep the old ones while they are valid."""
        self._tried_at = self._clock()
        try:
            address = self._settings.jwks_url or await self._discovered()
            read = KeySet.import_key_set(json.loads(await self._fetch(address)))
        except (httpx.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("The token issuer's keys cannot be read: %s", type(error).__name__)
            return
        self._keys = [
            key
            for key in read.keys
            if not isinstance(key, OctKey) and key.get("use", "sig") == "sig"
        ]
        self._read_at = self._clock()

    async def _discovered(self) -> str:
        """Return the address of the keys, from the issuer's discovery document.

        Raises:
            ValueError: The document belongs to another issuer, or has no safe address.
        """
        issuer = self._settings.issuer
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        discovery = _Discovery.model_validate_json(await self._fetch(place))
        if discovery.issuer != issuer:
            raise ValueError("the discovery document is from another issuer")
        return discovery.jwks_uri

    async def _fetch(self, address: str) -> bytes:
        """Return the content of an address, at most `MAX_BYTES`."""
        async with self._http.stream("GET", address) as response:
            if response.status_code != 200:
                raise ValueError(f"status {response.status_code}")
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise ValueError("too large")
        return body


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"The token is not valid: {why}.", hint="Ask its issuer for a new one.")


def _claim(claims: dict[str, Any], name: str) -> Any:
    """Return the claim of that name, or else the value at its dotted path."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _name(claims: dict[str, Any], name: str) -> str:
    value = _claim(claims, name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a name")
    return value


def _names(value: Any) -> list[str]:
    """Return the names in a claim: a list or a single one; empty if it is missing."""
    names = [value] if isinstance(value, str) else value or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise _refused("its groups must be a list of names")
    return names
