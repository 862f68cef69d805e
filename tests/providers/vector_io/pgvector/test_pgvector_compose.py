"""compose.yaml: its PostgreSQL is what Corral needs, before anybody runs a command in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from corral.api.provider import Health
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import ProviderEntry, RunConfig, load_config
from corral.providers.stack.stack import Stack

from .conftest import Server
from .helpers import ask

ROOT = Path(__file__).parents[4]
INIT = "/docker-entrypoint-initdb.d/"
PASSWORD = "of compose"


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Return what a service mounts: the path in the container, and the path or volume behind it."""
    parts = [mount.split(":") for mount in service["volumes"]]
    return {part[1]: part[0] for part in parts}


@pytest.fixture
def compose() -> dict[str, Any]:
    """Return compose.yaml."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    return parsed


@pytest.fixture
def database(server: Server, compose: dict[str, Any]) -> Iterator[None]:
    """Make the role and the database as the image does, then run the scripts that are mounted."""
    settings = compose["services"]["postgres"]["environment"]
    user, name = settings["POSTGRES_USER"], settings["POSTGRES_DB"]
    ask(server, f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    ask(server, f"CREATE DATABASE {name} OWNER {user} TEMPLATE template0 ENCODING 'UTF8'")
    address = psycopg.conninfo.make_conninfo(server.dsn, user=user, dbname=name, password=PASSWORD)
    with psycopg.connect(address, autocommit=True) as connection:
        for place, file in sorted(mounts(compose["services"]["postgres"]).items()):
            if place.startswith(INIT):
                connection.execute((ROOT / file).read_text("utf-8").encode())
    yield
    ask(server, f"DROP DATABASE {name} (FORCE)")
    ask(server, f"DROP ROLE {user}")


def config_of(compose: dict[str, Any], server: Server, home: Path) -> RunConfig:
    """Return the configuration that compose.yaml mounts, with the addresses of this machine."""
    mounted = mounts(compose["services"]["corral"])["/data/run.yaml"]
    config = load_config(ROOT / mounted, home)
    (entry,) = [one for one in config.providers.vector_io if one.provider_id == "pgvector"]
    assert config.providers.vector_io[0] is entry  # the default
    entry.config = {**entry.config, "host": "127.0.0.1", "port": server.port}
    hashing = ProviderEntry(provider_id="hashing", provider_type="inline::hashing")
    config.providers.embedding = [hashing]
    return config


async def health_of(stack: Stack) -> Health:
    """Return the health of pgvector; on a busy machine the first imports take more than 5 s."""
    for _ in range(10):
        health = {each.provider_id: each.health for each in await stack.providers()}["pgvector"]
        if "no answer" not in health.message:
            break
    return health


def test_every_mounted_file_and_named_volume_is_there(compose: dict[str, Any]) -> None:
    """What compose.yaml mounts exists, and a secret comes from the environment only."""
    for name, service in compose["services"].items():
        for source in mounts(service).values():
            if source.startswith("."):
                assert (ROOT / source).is_file(), (name, source)
            else:
                assert source in compose["volumes"], (name, source)
        for other in service.get("depends_on", ()):
            assert other in compose["services"]
    for name in ("corral", "postgres"):
        secret = compose["services"][name]["environment"]["POSTGRES_PASSWORD"]
        assert secret.startswith("${POSTGRES_PASSWORD:?")


@pytest.mark.usefixtures("database")
async def test_the_first_vector_db_is_made_without_a_command_in_the_database(
    server: Server,
    compose: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider is healthy from the start, and the first vector DB is made.

    Another Corral on the same database, with a data folder of its own, has its own registrations.

    If this fails: the first `corral dbs create` after `docker compose up` fails.
    """
    monkeypatch.setenv("POSTGRES_PASSWORD", PASSWORD)
    one = Stack(config_of(compose, server, tmp_path / "one"), tmp_path / "one")
    other = Stack(config_of(compose, server, tmp_path / "other"), tmp_path / "other")
    asked = VectorDBRegistration(vector_db_id="notes", embedding_model="hashing")
    try:
        health = await health_of(one)
        assert health.status == "OK", health.message
        made = await one.register(asked)
        assert made.provider_id == "pgvector"
        assert await (await one.index("notes")).count() == 0
        assert await other.vector_dbs() == []
        await one.unregister("notes")
    finally:
        await one.close()
        await other.close()
