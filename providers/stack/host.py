"""The machine that has the data of inline providers.

Several machines can share the registrations. An inline provider keeps its data in the data folder
of one machine. So the registration names that machine, and the others refuse requests for the
vector DB.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from corral.api.chunks import STORED
from corral.api.errors import ConfigError, Elsewhere, InvalidRequest
from corral.api.provider import Api, ProviderSpec
from corral.api.vector_dbs import VectorDB
from corral.providers.base.config import RunConfig
from corral.providers.base.disk import whole_file
from corral.providers.stack.registry import find_spec, is_inline

HOST_NAME = "host"
"""Name of the file in the data folder with the id of the machine."""


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
    """Check that this machine has the data of a vector DB.

    Args:
        here: Id of this machine; "" if no other machine shares the registrations.

    Raises:
        Elsewhere: Another machine has the data.
    """
    if here and vector_db.host not in ("", here):
        raise Elsewhere(
            f"Vector DB {vector_db.identifier!r} is on another machine: {vector_db.provider_id} "
            f"keeps it in the data folder of host {vector_db.host}.",
            hint="Send the request there. All machines serve vector DBs of remote providers: "
            "the operator's setting is providers.vector_io.",
            field="vector_db_id",
        )


def is_shareable(spec: ProviderSpec) -> bool:
    """Return True if no write of a provider stays half done if a machine fails.

    An inline provider serves only one machine. A remote engine without transactions needs a
    write-ahead log that all machines share, so that one machine can finish the writes of another.
    """
    is_safe = is_inline(spec.provider_type) or spec.capabilities.transactional
    return is_safe or spec.write_log


def moved_registration(registration: str, config: RunConfig, here: str, *, shared: bool) -> str:
    """Convert a stored registration for another state.

    Args:
        registration: The registration, as JSON.
        config: The providers.
        here: Id of this machine.
        shared: True if the state that has the registration is shared, and the other is not;
            False for the reverse.

    Raises:
        Elsewhere: The other state is this machine's, and another machine has the data.
    """
    vector_db = VectorDB.model_validate_json(registration, context=STORED)
    if shared:
        check_host(vector_db, here)
        return registration
    inline = {e.provider_id for e in config.providers.vector_io if is_inline(e.provider_type)}
    if vector_db.provider_id not in inline:
        return registration
    return vector_db.model_copy(update={"host": here}).model_dump_json()


def check_shared(config: RunConfig) -> None:
    """If machines share the registrations, check that each provider supports that.

    Raises:
        ConfigError: A provider does not work with shared registrations.
    """
    for entry in config.providers.vector_io:
        spec = find_spec(Api.VECTOR_IO, entry.provider_type)
        if config.shares_state and not is_shareable(spec):
            raise ConfigError(
                f"{entry.provider_id} ({entry.provider_type}) has neither transactions nor a "
                "write-ahead log, so machines that share a state in PostgreSQL could not finish "
                "each other's writes.",
                hint="Use another provider, or write `state: sqlite`. Its author can set "
                "`write_log` in its ProviderSpec.",
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
