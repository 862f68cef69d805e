"""Errors and health answers with the same wording for all engines."""

from __future__ import annotations

from collections.abc import Awaitable

from corral.api.errors import ConfigError, CorralError, NotFound
from corral.api.provider import Health


def data_is_gone(message: str) -> NotFound:
    """Return the error for a vector DB if its collection or tables have been deleted."""
    return NotFound(
        message, hint="Delete the vector DB and register it again.", field="vector_db_id"
    )


def refuse_newer(stored: int, newest: int, provider_id: str) -> None:
    """Refuse stored data with a layout that this version does not know.

    Raises:
        ConfigError: `stored` is above `newest`.
    """
    if stored > newest:
        raise ConfigError(
            f"{provider_id}: a newer Corral wrote this vector DB.", hint="Run that version."
        )


async def health_of(check: Awaitable[object]) -> Health:
    """Return OK if a check succeeds, else Error with the reason.

    Args:
        check: Its result, if it is a text, is the version of the engine.
    """
    try:
        version = await check
    except CorralError as error:
        return Health("Error", str(error))
    return Health("OK", version=version if isinstance(version, str) else "")
