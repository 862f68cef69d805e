"""Every error that Corral raises on purpose, and what each one means to a caller.

    CorralError
    ├── InvalidRequest            the request cannot be served as it stands           400
    │   ├── InvalidEmbedding      wrong dimension, not finite, or zero under cosine    400
    │   ├── InvalidFilter         malformed filter; names the path to the bad node     400
    │   ├── Expired               a vector store after its expiry                       400
    │   ├── TooLarge              a file beyond the operator's limit                   413
    │   └── UnsupportedMode       unknown search mode; lists the valid ones            400
    ├── Unauthenticated           no API key or token, or one that is not valid        401
    ├── Forbidden                 the caller's role or tokens do not include this      403
    ├── NotFound                  no such vector DB, chunk, file or model              404
    ├── Conflict                  contradicts what is stored                           409
    │   └── Elsewhere             another machine holds the vector DB's data           409
    ├── ConfigError               the operator's configuration cannot work             424
    │   ├── UnknownProvider       no such provider; names the nearest one              400
    │   └── MissingDependency     a package or model is missing; how to install it     424
    ├── ProviderError             the backend answered with an error                   502
    │   ├── Refused               a service refuses the request as it stands           502
    │   ├── Unavailable           the backend cannot be reached (retryable)            503
    │   │   └── Overloaded        it asks for a pause (retryable)                      503
    │   └── ProviderTimeout       the backend did not answer in time (retryable)       504
    └── ContractViolation         a provider broke the contract: a defect              500

The numbers are the HTTP statuses that the server's one table gives them. 424 (Failed Dependency)
and not 5xx, because clients retry 5xx, and retrying does not install a missing package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CorralError(Exception):
    """Base of all deliberate errors: a message, and a hint that says what to do about it.

    Args:
        message: The problem and the actual value. One sentence, no user text beyond names that
            the caller sent as names.
        hint: The remedy; empty if the message already says it.
        field: The invalid request field, as a dotted path (`query_config.max_chunks`), or None.
    """

    retryable = False

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidRequest(CorralError):
    """The request cannot be served as it stands; the caller has to change it."""


class InvalidEmbedding(InvalidRequest):
    """An embedding has the wrong dimension, holds NaN or infinity, or is zero under cosine."""


class InvalidFilter(InvalidRequest):
    """A filter is malformed; `field` holds the path to the bad node."""


class Expired(InvalidRequest):
    """The vector store has expired: its chunks were deleted, only its name remains."""


class TooLarge(InvalidRequest):
    """The input is larger than the operator allows."""


class UnsupportedMode(InvalidRequest):
    """The search mode is unknown or this index does not support it."""

    def __init__(self, mode: object, valid: Iterable[str]) -> None:
        names = ", ".join(valid)
        super().__init__(
            f"Unknown search mode {mode!r}.", hint=f"Valid modes: {names}.", field="mode"
        )


class Unauthenticated(CorralError):
    """The request carries no API key or token, or one that is not valid."""


class Forbidden(CorralError):
    """The caller may not do this: its role or the tokens it holds do not include it."""


class NotFound(CorralError):
    """A named object does not exist."""


class Conflict(CorralError):
    """The request contradicts what is stored."""


class Elsewhere(Conflict):
    """Another machine holds the data of the vector DB."""


class ConfigError(CorralError):
    """The operator's configuration cannot work."""


class UnknownProvider(ConfigError):
    """No provider has this id or type; the message names the nearest one that exists."""

    def __init__(self, name: str, names: Iterable[str], *, field: str | None = None) -> None:
        names = sorted(names)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        super().__init__(
            f"Unknown provider {name!r}.",
            hint=f"{hint}Known: {', '.join(names) or 'none'}.",
            field=field,
        )


class MissingDependency(ConfigError):
    """A package or a model is not installed; `command` is the exact way to install it.

    Args:
        what: The component that needs it, for example `inline::minilm`.
        package: The missing package or model.
        command: The shell command that installs it.
    """

    def __init__(self, what: str, package: str, command: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed.", hint=f"Run: {command}")
        self.command = command


class ProviderError(CorralError):
    """A backend answered with an error. The message names the provider and contains no data."""


class Refused(ProviderError):
    """A service refuses the request as it stands.

    Args:
        code: The service's name for the reason; "" if it names none.
    """

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Unavailable(ProviderError):
    """A backend cannot be reached."""

    retryable = True


class Overloaded(Unavailable):
    """A backend has too many requests, and asks for a pause."""


class ProviderTimeout(ProviderError):
    """A backend did not answer in time."""

    retryable = True


class ContractViolation(CorralError):
    """A provider returned something that the contract forbids: a defect in that provider."""
