"""Find the caller in a request's headers: by an API key, a token, or neither on an open server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from corral.api.errors import ConfigError, Forbidden, MissingDependency, Unauthenticated
from corral.api.principal import UNRESTRICTED, Principal
from corral.providers.base.config import ServerSettings
from corral.providers.base.server_config import AuthSettings, RateLimits
from corral.providers.state.keys import PREFIX, KeyStore
from corral.providers.state.state import State

if TYPE_CHECKING:
    from corral.server.access.oidc import Issuer

_HOW = (
    "Create a key with `corral keys create NAME --role admin`, configure server.auth.oidc, or "
    "write `auth: none` under server in run.yaml to let everyone do everything."
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and its rate limits.

    Attributes:
        known: True if the caller is authenticated; other callers are not in the audit log.
    """

    principal: Principal
    limits: RateLimits = field(default_factory=RateLimits)
    known: bool = True


class Callers:
    """Identifies who sends a request.

    Authentication is required if `server.auth.oidc` is set, or if an API key exists or ever
    existed. Otherwise, on a loopback address only, every caller is the operator; under
    `server.auth: none`, on any address.

    Args:
        settings: The section `server`.
        state: The tables, including the keys.
        operator: The sender of every request, for the command line in process; None applies the
            rules above.

    Raises:
        MissingDependency: Tokens are configured and their package is not installed.
    """

    def __init__(
        self, settings: ServerSettings, state: State, operator: Principal | None = None
    ) -> None:
        self.keys = KeyStore(state)
        self._settings = settings
        self._open_to = UNRESTRICTED if settings.auth == "none" else operator
        self._issuer = _issuer(settings.auth)

    async def required(self) -> bool:
        """Return True if a request needs a key or a token."""
        if self._open_to is not None:
            return False
        return self._issuer is not None or await self.keys.exist()

    async def check_address(self) -> None:
        """Refuse to serve on an address that other machines can reach if no key is required.

        Raises:
            ConfigError: Authentication is not configured, and `server.host` is not a loopback
                address.
        """
        host = self._settings.host
        if self._open_to is None and not is_loopback(host) and not await self.required():
            raise ConfigError(
                f"Without authentication the server listens on loopback only (got {host}).",
                hint=_HOW,
                field="server.host",
            )

    async def of(self, headers: Headers, address: str) -> Caller:
        """Return the caller of a request.

        Args:
            headers: The request's headers. Only Authorization is read; a proxy's headers are
                ignored.
            address: The local address of the socket.

        Raises:
            Unauthenticated: The request needs a valid key or token.
            Forbidden: Authentication is not configured, and the request arrived at a public
                address.
            Unavailable: The issuer's keys cannot be read.
        """
        if self._open_to is not None:
            return Caller(self._open_to, known=False)
        if not await self.required():
            if _is_address(address) and not is_loopback(address):
                raise Forbidden("This server answers on loopback addresses only.", hint=_HOW)
            return Caller(UNRESTRICTED, known=False)
        secret = _bearer(headers)
        if self._issuer is None or secret.startswith(PREFIX):
            key = await self.keys.holder(secret)
            return Caller(key.principal, _with_defaults(key.limits, self._settings.rate_limits))
        return Caller(await self._issuer.principal(secret), self._settings.rate_limits)

    async def close(self) -> None:
        """Close the connections to the issuer."""
        await self.keys.close()
        if self._issuer is not None:
            await self._issuer.close()


def is_loopback(host: str) -> bool:
    """Return True if no other machine can reach a host name or address."""
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bearer(headers: Headers) -> str:
    given = headers.getlist("authorization")
    scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated(
            f"The request must have one Authorization header (got {len(given)})."
            if len(given) != 1
            else "The Authorization header must be `Bearer` and a key.",
            hint="Send an API key as Authorization: Bearer KEY.",
        )
    return secret.strip()


def _issuer(auth: object) -> Issuer | None:
    if not isinstance(auth, AuthSettings):
        return None
    try:
        from corral.server.access.oidc import Issuer  # noqa: PLC0415 - its extra may be absent
    except ImportError:
        command = "pip install 'corral-rag[oidc]'"
        raise MissingDependency("server.auth.oidc", "joserfc", command) from None
    return Issuer(auth.oidc)


def _with_defaults(own: RateLimits, servers: RateLimits) -> RateLimits:
    given = {name: value for name, value in own if value is not None}
    return servers.model_copy(update=given)
