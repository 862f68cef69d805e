"""A data folder that a newer Corral has written: each file is refused and left as it is."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import httpx
import pytest

from corral.api.errors import ConfigError
from corral.providers.state.keys import KeyStore
from corral.providers.state.opening import STATE_NAME
from corral.providers.state.state import State

from .harness import InProcess, Json, run_config

ENGINES = ("sqlite", "faiss", "chroma")
"""The inline engines whose vector DBs have a SQLite file of Corral's."""

OWN = {"embeddings", "state"}
"""The files of the data folder itself."""

FILE_VERSION = ("PRAGMA user_version", "PRAGMA user_version={}")
STATE_VERSION = (
    "SELECT version_num FROM alembic_version",
    "UPDATE alembic_version SET version_num = '{}'",
)
"""How to read and write the schema version."""

CONFIG = run_config(
    providers={
        "vector_io": [
            {"provider_id": name, "provider_type": f"inline::{name}"} for name in ENGINES
        ],
        "embedding": [
            {
                "provider_id": "hashing",
                "provider_type": "inline::hashing",
                "config": {"dimension": 8},
            }
        ],
    },
    server={"port": 0, "auth": "none"},  # there is a key, too
)


def touch(home: Path, *, make: bool) -> list[str]:
    """Use every file of a data folder, and return the messages of what was refused."""
    refused: list[str] = []
    try:
        with InProcess(home, CONFIG) as app:
            refused += use_app(app, make=make)
    except ConfigError as error:  # at the start
        refused.append(str(error))
    try:
        asyncio.run(use_keys(home, make=make))
    except ConfigError as error:
        refused.append(str(error))
    return refused


def use_app(app: InProcess, *, make: bool) -> list[str]:
    """Write to each vector DB, query it, list jobs, files and stores, make a conversation."""
    answers: list[httpx.Response] = []

    def send(method: str, path: str, body: Json | None = None) -> None:
        answers.append(app.send(method, path, body))

    if make:
        for engine in ENGINES:
            registered = {"vector_db_id": engine, "embedding_model": "hashing"}
            send("POST", "/v1/vector-dbs", {**registered, "provider_id": engine})
        send("POST", "/v1/vector_stores", {"name": "store", "embedding_model": "hashing"})
    for vector_db in app.ok("GET", "/v1/vector-dbs")["data"]:
        db = {"vector_db_id": vector_db["identifier"]}
        document = {"document_id": "a", "content": f"hay {make}"}
        send("POST", "/v1/tool-runtime/rag-tool/insert", {**db, "documents": [document]})
        send("POST", "/v1/vector-io/query", {**db, "query": "hay"})
    send("POST", "/v1/conversations", {})
    for path in ("/v1/jobs", "/v1/files", "/v1/vector_stores"):
        send("GET", path)
    refused = [answer for answer in answers if answer.status_code >= 400]
    return [str(answer.json()["error"]["message"]) for answer in refused]


async def use_keys(home: Path, *, make: bool) -> None:
    """Read the keys, or make one."""
    state = State(home)
    try:
        store = KeyStore(state)
        await (store.create("ann") if make else store.all())
    finally:
        await state.close()


def sqlite_files(home: Path) -> list[Path]:
    """Return the SQLite files of a folder, by their first bytes."""
    return [
        path
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3"
    ]


@pytest.mark.sqlite_state("each SQLite file of a data folder")
def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Each SQLite file of a folder, once newer, ends in an error with both versions, unchanged.

    If this fails: open the file by `State` or `Database`, or by `connect` with its newest version.
    A downgrade must not write into a file whose tables it does not know.
    """
    assert touch(tmp_path, make=True) == []
    files = [path for path in sqlite_files(tmp_path) if path.name != "chroma.sqlite3"]
    assert {path.stem for path in files if path.parent == tmp_path} == OWN
    folders = [path.relative_to(tmp_path).parts[0] for path in files if path.parent != tmp_path]
    assert set(folders) == set(ENGINES)
    for path in files:
        read, write = STATE_VERSION if path.name == STATE_NAME else FILE_VERSION
        newer = "9999" if path.name == STATE_NAME else "99"
        with closing(apsw.Connection(str(path))) as connection:
            version = str(connection.execute(read).get)
            assert int(version) >= 1, path
            connection.execute(write.format(newer))
        before = path.read_bytes()
        messages = touch(tmp_path, make=False)
        words = f"{path.name} has schema version {newer}; this Corral reads up to {version}."
        assert any(words in message for message in messages), (path, messages)
        assert path.read_bytes() == before, path
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute(write.format(version))
