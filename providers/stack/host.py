"""The machine that holds the data of inline providers.

Several machines can share the registrations. An inline provider keeps its data in the data folder
of one of them, so a registration names it, and the others refuse requests for that vector DB.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from corral.api.errors import ConfigError, Elsewhere, InvalidRequest
from corral.api.provider import Api
from corral.api.vector_dbs import VectorDB
from corral.providers.base.config import RunConfig
from corral.providers.base.disk import whole_file
from corral.providers.stack.registry import find_spec, is_inline

HOST_NAME = "host"
"""The file of the data folder that has the id of its machine."""


def host_id(home: Path) -> str:
    """Return the id of a data folder's machine: 32 hex digits, made at the first call."""
    path = home / HOST_NAME
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"{HOST_NAME}.{uuid4().hex}")
        with whole_file(own) as file:
            file.write(uuid4().hex.encode())
        with suppress(FileExistsError):  # another process was faster
            os.link(own, path)
        own.unlink()
    return path.read_text(encoding="ascii").strip()


def check_host(vector_db: VectorDB, here: str) -> None:
    """Check that this machine holds the data of a vector DB.

    Args:
        here: Id of this machine; "" if no other machine shares the registrations.

    Raises:
        Elsewhere: Another machine holds it.
    """
    if here and vector_db.host not in ("", here):
        raise Elsewhere(
            f"Vector DB {vector_db.identifier!r} is on another machine: {vector_db.provider_id} "
            f"keeps it in the data folder of host {vector_db.host}.",
            hint="Send the request there. All machines serve vector DBs of remote providers: "
            "the operator's setting is providers.vector_io.",
            field="vector_db_id",
        )


def check_shared(config: RunConfig) -> None:
    """Check that each provider works with shared registrations, if they are shared.

    A remote engine without transactions needs a write-ahead log. It is in the data folder of the
    writing machine, so no other machine can finish its writes.

    Raises:
        ConfigError: A provider does not work with shared registrations.
    """
    for entry in config.providers.vector_io:
        capabilities = find_spec(Api.VECTOR_IO, entry.provider_type).capabilities
        one_machine = not (is_inline(entry.provider_type) or capabilities.transactional)
        if config.shares_state and one_machine:
            raise ConfigError(
                f"{entry.provider_id} ({entry.provider_type}) has no transactions: its notes of "
                "unfinished writes are in the data folder, and machines that share a state in "
                "PostgreSQL could not finish each other's writes.",
                hint="Use remote::pgvector, or write `state: sqlite`.",
                field="providers.vector_io",
            )


def default_provider(config: RunConfig) -> str:
    """Return the id of the vector_io provider of a registration that names none.

    Raises:
        InvalidRequest: Machines share the registrations, and all providers are inline.
    """
    for entry in config.providers.vector_io:
        if not (config.shares_state and is_inline(entry.provider_type)):
            return entry.provider_id
    raise InvalidRequest(
        "provider_id is missing, and no configured provider serves all machines.",
        hint="Add a remote provider to providers.vector_io in run.yaml, or name an inline one: its "
        "vector DB stays on this machine.",
        field="provider_id",
    )
