"""The sections of `server` about access and traces, which only the server reads."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from corral.api.principal import Role, check_name

Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"
]
"""Public-key signatures. `none` and HMAC with the public key as a secret are excluded."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and parts.hostname in LOOPBACK_NAMES
    ):
        raise ValueError(f"{url!r} is not an https address")
    return url


SafeUrl: TypeAlias = Annotated[str, AfterValidator(_check_url)]


def _check_name(name: str) -> str:
    check_name(name)
    return name


Name: TypeAlias = Annotated[str, AfterValidator(_check_name)]


class Section(BaseModel):
    """A section of `run.yaml`: an unknown key is rejected, and no error quotes a value.

    A value may be a secret.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class OidcAuth(Section):
    """The accepted issuer of tokens, and the claims that identify the caller."""

    issuer: SafeUrl = Field(description="`iss` of every token, letter by letter.")
    audience: str = Field(min_length=1, description="Must be in `aud` of every token.")
    jwks_url: SafeUrl | None = Field(
        default=None, description="Its public keys; null: as the issuer's discovery document says."
    )
    algorithms: list[Algorithm] = Field(
        default=["RS256", "ES256"], min_length=1, description="Accepted signatures of tokens."
    )
    clock_skew_seconds: int = Field(
        default=60, ge=0, le=300, description="Tolerance for a token's `exp` and `nbf`."
    )
    user_claim: str = Field(default="sub", min_length=1, description="Claim with the user's name.")
    groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="Claim with a list of group names; dots lead into objects.",
    )
    tenant_claim: str | None = Field(
        default=None,
        description="Claim with the tenant's name; null: every token is of `tenant`.",
    )
    tenant: Name = Field(
        default="", description="Tenant of every token, without `tenant_claim`. Empty: the default."
    )
    roles: dict[Name, Role] = Field(
        default_factory=dict, description="Role by group; the highest of a token's groups counts."
    )
    default_role: Role | None = Field(
        default=Role.READER, description="Role of a token without such a group; null refuses it."
    )


class AuthSettings(Section):
    """Authentication in addition to API keys."""

    oidc: OidcAuth


class RateLimits(Section):
    """Limits of one API key, or of one user with tokens; null for none. Above them: status 429."""

    requests_per_minute: int | None = Field(default=None, ge=1, description="Requests.")
    mib_per_minute: float | None = Field(default=None, gt=0, description="Request bodies.")
    concurrent_requests: int | None = Field(
        default=None, ge=1, description="Requests that run at once."
    )


class AuditSettings(Section):
    """The audit log, written if requests are authenticated: one JSON line per decision."""

    enabled: bool = Field(default=True, description="Whether to write it.")
    folder: str | None = Field(default=None, description="null: `audit` in the data folder.")
    max_mib: float = Field(default=16, gt=0, description="Size at which the next file begins.")
    max_files: int = Field(default=100, ge=1, description="Files to keep; older ones are deleted.")


class TracingSettings(Section):
    """Traces over OTLP/HTTP, one span for each stage of a query."""

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] = Field(
        default="http://127.0.0.1:4318/v1/traces", description="The collector's address."
    )
    service_name: str = Field(
        default="corral", min_length=1, max_length=255, description="`service.name` of the spans."
    )
    sample_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of traces that are sent; a caller's decision wins.",
    )
    timeout_seconds: float = Field(default=10, gt=0, le=60, description="Of one batch of spans.")
    texts: bool = Field(default=False, description="Put the questions into the spans.")
