"""Collections and folders of Milvus: made, opened, refused, and left as they were."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import psutil
import pytest

from corral.api.errors import NotFound, ProviderError, Unavailable
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.milvus import client as client_module

from ..engines import engine_of
from ..far import far
from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from .conftest import Server
from .helpers import lite, registered, remote, words


async def test_what_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Without create, a vector DB that Milvus does not hold is NotFound, and stays absent."""

    provider = lite(tmp_path)
    for _ in range(2):
        with pytest.raises(NotFound):
            await provider.open_index(registered("x", created_at=1.0))
    other = await provider.open_index(registered("other"), create=True)
    index = await provider.open_index(registered("x", created_at=1.0), create=True)
    engine_of(index).collection.drop()
    with pytest.raises(NotFound):
        await index.get_chunks(["a"])
    await other.close()
    await index.close()


async def test_a_collection_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When loading fails the collection is dropped, and the folder is free again."""

    def fail(_: client_module.Collection) -> None:
        raise ProviderError("no")

    monkeypatch.setattr(client_module.Collection, "record_version", fail)
    with pytest.raises(ProviderError, match="no"):
        await lite(tmp_path).open_index(registered(created_at=1.0), create=True)
    monkeypatch.undo()
    provider = lite(tmp_path)
    with pytest.raises(NotFound):
        await provider.open_index(registered(created_at=1.0))


@pytest.mark.parametrize("left_bytes", [0, 60, 500])
async def test_a_torn_index_file_is_made_anew(tmp_path: Path, left_bytes: int) -> None:
    """A process that is killed while Milvus Lite writes an index file loses nothing.

    If this fails: Milvus Lite refuses the collection at each start.
    """
    chunks = words({f"c{i}": " ".join(f"w{i}x{j}" for j in range(200)) for i in range(101)})
    embeddings = np.random.default_rng(0).normal(size=(101, 2)).astype(np.float32)
    vector_db, provider = registered(), lite(tmp_path)
    index = await provider.open_index(vector_db, create=True)
    await index.add_chunks(chunks, embeddings)
    right = (await index.query([1, 0], "", 101)).hits
    await provider.close()
    (file,) = tmp_path.rglob("*.idx")
    os.truncate(file, left_bytes)
    index = await lite(tmp_path).open_index(vector_db)
    assert (await index.query([1, 0], "", 101)).hits == right
    assert file.stat().st_size > 500
    await index.close()


def test_names_of_collections_are_hashes_of_id_and_time() -> None:
    """Letters, digits and the prefix only; another id or another time is another collection."""
    names = {
        stored_name(registered(i, created_at=t), "corral_")
        for i in ("a", "A", "a'; --", "天气", "x" * 255)
        for t in (1.0, 2.0)
    }
    assert len(names) == 10
    assert all(name.isidentifier() and name.isascii() and len(name) == 47 for name in names)


async def test_a_server_far_away_is_reached(milvus_server: Server) -> None:
    """A connection may take longer to open than the pause between two attempts.

    If this fails: a server behind TLS and a long way counts as one that cannot be reached.
    """
    async with far(milvus_server.port) as port:
        provider = remote(f"http://127.0.0.1:{port}")
        health = await provider.health()
        await provider.close()
    assert health.status == "OK"


async def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    """While another one has the folder open, health and opening say so, and work afterwards.

    The other process is stood for by its lock; the conformance suite starts real ones.
    """

    provider = lite(tmp_path)
    (tmp_path / "milvus.db").mkdir()
    with (tmp_path / "milvus.db" / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "lite" in (await provider.health()).message
        with pytest.raises(Unavailable, match="allows one process at a time"):
            await provider.open_index(registered(), create=True)
    assert (await provider.health()).status == "OK"
    index = await provider.open_index(registered(), create=True)
    with (tmp_path / "milvus.db" / "LOCK").open("w") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    await index.close()
    with (tmp_path / "milvus.db" / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_an_embedded_milvus_opens_no_port(tmp_path: Path) -> None:
    """Nobody on the machine can connect to a vector DB of inline::milvus.

    If this fails: Milvus Lite runs as a server, which asks for no password.
    """

    def listening() -> set[int]:
        connections = psutil.Process().net_connections("tcp")
        return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}

    before = listening()
    index = await lite(tmp_path).open_index(registered(), create=True)
    await index.add_chunks(words({"a": "zebra"}), [[1, 0]])
    assert listening() == before
    await index.close()


async def test_an_orphan_is_found_and_removed(milvus_server: Server) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    await check_orphans(remote(milvus_server.uri))


async def test_installations_delete_only_their_own(milvus_server: Server, tmp_path: Path) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    config = {"uri": milvus_server.uri, "collection_prefix": "installations_"}
    await check_installations(tmp_path, "remote::milvus", config)
    await check_pruning_beside(tmp_path, "remote::milvus", config)
