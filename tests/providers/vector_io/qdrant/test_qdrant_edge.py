"""inline::qdrant beyond the suite: its folder, its one process, kills, upgrades and upkeep."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError, NotFound, ProviderError
from corral.api.testing.indexes import chunk, ids, raw_scores
from corral.api.testing.oracle import bm25
from corral.providers.text.analyzer import Analysis, QueryTerms
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.qdrant import engine as engine_module
from corral.providers.vector_io.qdrant import keyword as keyword_module
from corral.providers.vector_io.qdrant.edge import client as engine
from corral.providers.vector_io.qdrant.edge import collection as edge
from corral.providers.vector_io.qdrant.records import VERSION

from ..engines import engine_of
from .edge_helpers import found_by_words, opened, provider_of, registered


async def test_another_process_that_opens_the_folder_is_told(tmp_path: Path) -> None:
    """The second opener gets Unavailable, which names the way out, and the first goes on.

    If this fails: two processes write one folder, and one of them loses.
    """
    index = await opened(tmp_path)
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from corral.api.vector_dbs import VectorDB\n"
        "from corral.api.errors import Unavailable\n"
        "from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig\n"
        "from corral.providers.vector_io.qdrant.provider import create\n"
        "folder = Path(sys.argv[1])\n"
        "provider = create('edge', QdrantEdgeConfig(folder=folder), folder)\n"
        "try:\n"
        "    asyncio.run(provider.open_index(VectorDB.model_validate_json(sys.argv[2])))\n"
        "except Unavailable as error:\n"
        "    print(error)\n"
    )
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, str(tmp_path), registered().model_dump_json()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "another process has this vector DB open" in second.stdout
    assert "remote::qdrant" in second.stdout
    await index.add_chunks([chunk("a", "zebra")], [[1, 0]])
    await index.close()
    await (await opened(tmp_path)).close()


async def test_a_folder_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Without `create` a missing folder is NotFound, and nothing is made."""
    with pytest.raises(NotFound):
        await provider_of(tmp_path).open_index(registered())
    assert list(tmp_path.iterdir()) == []


async def test_a_half_made_folder_is_made_anew(tmp_path: Path) -> None:
    """What a process that was killed while making it has left neither counts nor disturbs."""
    folder = tmp_path / stored_name(registered())
    folder.mkdir()
    (folder / "edge_config.json").write_text("{")
    with pytest.raises(NotFound):
        await provider_of(tmp_path).open_index(registered())
    index = await opened(tmp_path)
    await index.add_chunks([chunk("a", "zebra")], [[1, 0]])
    await index.delete()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """A file where the folder should be: ProviderError with the provider's name, health says no."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ProviderError, match="edge: cannot write"):
        await provider_of(tmp_path / "file").open_index(registered(), create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (await provider_of(tmp_path / "file").health()).status == "Error"
    assert (await provider_of(tmp_path / "new").health()).status == "OK"


async def test_an_interrupted_replacement_is_finished_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two operations of a write: the new version is whole, the old one gone.

    If this fails: both versions of a document stay and are found.
    """
    index = await opened(tmp_path)
    await index.add_chunks([chunk(f"old{n}", "old", document_id="d") for n in "ab"], [[1, 0]] * 2)
    other = chunk("x", "old")
    await index.add_chunks([other], [[1, 0]])

    def killed(*_: object) -> None:
        raise RuntimeError("as good as killed")

    with monkeypatch.context() as patched:
        patched.setattr(edge.EdgeCollection, "_remove", killed)
        with pytest.raises(RuntimeError):
            await index.add_chunks(
                [chunk("new", "new", document_id="d")], [[1, 0]], replace_documents={"d"}
            )
    await index.close()
    index = await opened(tmp_path)
    assert await index.count() == 2
    assert await found_by_words(index, "old new") == ["new", "x"]
    assert await index.get_chunks(["olda", "oldb", "x"]) == [other]
    await index.close()


@pytest.mark.parametrize("flush_each_write", [True, False])
async def test_writes_are_flushed_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_each_write: bool
) -> None:
    """With flush_each_write every write is flushed, otherwise one in FLUSH_AFTER points."""
    monkeypatch.setattr(edge, "FLUSH_AFTER", 25)
    provider = provider_of(tmp_path, flush_each_write=flush_each_write)
    index = await provider.open_index(registered(), create=True)
    flushed = Counter[str]()

    class Shard:
        """The shard, with its flushes counted."""

        def __init__(self, shard: Any) -> None:
            self._shard = shard

        def __getattr__(self, name: str) -> Any:
            flushed[name] += 1
            return getattr(self._shard, name)

    collection = engine_of(index)._collection
    monkeypatch.setattr(collection, "_shard", Shard(collection._shard))
    for number in range(5):
        await index.add_chunks([chunk(f"c{number}{n}") for n in range(10)], [[1, 0]] * 10)
    await index.delete_chunks(["c00"])
    assert flushed["flush"] == (6 if flush_each_write else 1)
    await index.close()


async def test_deleted_points_are_cleared_out_and_answers_stay_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After most chunks are deleted the shard is rewritten; search, counts and writes go on.

    If this fails: a rewritten segment is searched by a graph, or counts what is gone.
    """
    monkeypatch.setattr(edge, "VACUUM_AFTER", 1000)
    index = await opened(tmp_path, embedding_dimension=4)
    rng = np.random.default_rng(13)
    rows = rng.normal(size=(2400, 4))
    chunks = [chunk(f"c{n:04}", f"word{n % 7} zebra", part=n % 3) for n in range(2400)]
    await index.add_chunks(chunks, rows)
    await index.delete_chunks([f"c{n:04}" for n in range(2000)])
    await index.add_chunks([chunk("c2000", "zebra new", part=1)], rows[:1])
    await index.close()
    index = await opened(tmp_path, embedding_dimension=4)
    assert await index.count() == 400
    rows[2000] = rows[0]
    directions = rows[2000:] / np.linalg.norm(rows[2000:], axis=1, keepdims=True)
    for query in rng.normal(size=(5, 4)):
        best = np.argsort(-(directions @ query))[:20] + 2000
        assert ids(await index.query(query, "", 20, mode="vector")) == [f"c{n:04}" for n in best]
    texts = {one.chunk_id: {"content": one.content} for one in chunks[2001:]}
    texts["c2000"] = {"content": "zebra new"}
    for words in ("new", "word3 zebra"):
        found = raw_scores(await index.query(None, words, 500, mode="keyword"))
        assert found == pytest.approx(bm25(words, texts, {"content": 1.0}), abs=1e-6)
    await index.close()


async def test_embeddings_under_plain_cosine_come_back_to_the_last_bit(tmp_path: Path) -> None:
    """Without `normalize` the engine compares directions, and the embedding itself is kept."""
    index = await opened(tmp_path, metric="cosine", normalize=False, embedding_dimension=3)
    rows = np.random.default_rng(16).normal(size=(20, 3)).astype(np.float32) * 1e5
    await index.add_chunks([chunk(f"c{n:02}") for n in range(20)], rows)
    found = await index.get_chunks([f"c{n:02}" for n in range(20)], include_embeddings=True)
    assert [one.embedding for one in found] == [[float(x) for x in row] for row in rows]
    await index.close()


async def test_another_analyzer_finds_all_terms_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened by a release whose analyzer differs, every chunk is indexed anew, in batches, once.

    If this fails: chunks stored before an upgrade are not found by words any more.
    """
    settings: dict[str, Any] = {"metric": "cosine", "normalize": False}
    index = await opened(tmp_path, **settings)
    chunks = [chunk(f"c{n}", "Zebra crossing", part=n, document_id="d") for n in range(25)]
    await index.add_chunks(chunks, [[3.0, 4.0]] * 25)
    await index.close()
    monkeypatch.setattr(engine_module, "VERSION", VERSION + 1)
    monkeypatch.setattr(engine_module, "REINDEX_BATCH", 10)

    class Shouting:
        """An analyzer of another release."""

        def terms(self, text: str) -> list[str]:
            return text.upper().split()

        def analyze(self, text: str) -> Analysis:
            return Analysis(self.terms(text), [])

        def query(self, text: str) -> QueryTerms:
            return QueryTerms(Counter(self.terms(text)), frozenset())

    monkeypatch.setattr(keyword_module, "analyzer", lambda _: Shouting())
    index = await opened(tmp_path, **settings)
    assert len(await found_by_words(index, "zebra", 50)) == 25
    assert await index.get_chunks([c.chunk_id for c in chunks]) == chunks
    [one] = await index.get_chunks(["c7"], include_embeddings=True)
    assert one.embedding == [3.0, 4.0]
    only = {"type": "in", "key": "part", "value": [3, 4]}
    assert ids(await index.query([3, 4], "ZEBRA", mode="hybrid", filters=only)) == ["c3", "c4"]
    await index.close()
    written: list[int] = []

    async def counted(_: object, points: list[Any], __: object) -> None:
        written.append(len(points))

    monkeypatch.setattr(edge.EdgeCollection, "replace", counted)
    await (await opened(tmp_path, **settings)).close()
    assert written == []


async def test_a_failed_replacement_never_deletes_what_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion of the old version fails once; its chunks are sent again and acknowledged.

    If this fails: the journal of the failed call outlives it, and the next opening deletes chunks
    that were written after it, or counts and searches find the journal itself.
    """
    index = await opened(tmp_path)
    old = [chunk(f"old{n}", "old", document_id="d") for n in range(3)]
    await index.add_chunks(old, [[1, 0]] * 3)
    real = engine.delete

    def broken(*_: object) -> None:
        raise Exception("as an engine whose disk is full")

    monkeypatch.setattr(engine, "delete", broken)
    with pytest.raises(ProviderError):
        await index.add_chunks(
            [chunk("new", "new", document_id="d")], [[1, 0]], replace_documents={"d"}
        )
    monkeypatch.setattr(engine, "delete", real)
    assert await index.count() == 1
    assert await index.chunk_ids() == ["new"]
    await index.add_chunks(old, [[1, 0]] * 3)
    await index.close()
    index = await opened(tmp_path)
    assert await index.chunk_ids() == ["new", "old0", "old1", "old2"]
    await index.close()


def operations(index: EngineIndex) -> list[Callable[[], Coroutine[Any, Any, Any]]]:
    """Return every operation of an index, to be called."""
    return [
        lambda: index.add_chunks([Chunk(content="secret words")], [[1, 0]]),
        lambda: index.add_chunks([], [], replace_documents={"d"}),
        lambda: index.query([1, 0], "zebra", mode="vector"),
        lambda: index.query([1, 0], "zebra", mode="keyword"),
        lambda: index.query([1, 0], mode="vector", filters={"type": "gt", "key": "x", "value": 1}),
        lambda: index.get_chunks(["a"]),
        lambda: index.delete_chunks(["a"]),
        lambda: index.count(),
        lambda: index.chunk_ids(),
    ]


async def test_a_closed_or_dropped_index_is_not_found(tmp_path: Path) -> None:
    """Every operation on a closed or dropped index says 404; closing twice is fine.

    If this fails: a request that holds an index which another request closed or dropped ends with
    an AttributeError, a panic, or "Qdrant Edge failed".
    """
    index = await opened(tmp_path)
    await index.close()
    await index.close()
    for use in operations(index):
        with pytest.raises(NotFound, match="was deleted or closed") as caught:
            await use()
        assert "secret" not in str(caught.value)
    index = await opened(tmp_path)
    await index.delete()
    for use in operations(index):
        with pytest.raises(NotFound, match="was deleted or closed"):
            await use()
    await index.delete()
    await index.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_closed_index_can_still_be_dropped(tmp_path: Path) -> None:
    """Its folder goes, too."""
    index = await opened(tmp_path)
    await index.close()
    await index.delete()
    assert list(tmp_path.iterdir()) == []


async def test_dropping_under_requests_gives_answers_or_not_found(tmp_path: Path) -> None:
    """Queries and writes that run while an index is dropped end well or with NotFound, 20 times."""

    async def use(index: EngineIndex) -> None:
        async def one(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            with contextlib.suppress(NotFound):
                await work()

        running = [asyncio.create_task(one(work)) for work in operations(index) * 3]
        await asyncio.sleep(0)
        await index.delete()
        await asyncio.gather(*running)

    for number in range(20):
        index = await opened(tmp_path, identifier=f"notes{number}")
        await index.add_chunks([chunk("a", "zebra", x=2)], [[1, 0]])
        await use(index)
    assert list(tmp_path.iterdir()) == []


def test_a_panic_of_the_engine_is_an_error_of_the_provider() -> None:
    """A panic is no `Exception` in Python and would pass every handler up to the server."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ProviderError, match="edge: Qdrant Edge failed"), engine.errors("edge"):
        raise panic("index out of bounds: secret")


async def test_a_newer_layout_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older Corral that opens what a newer one has written says so, and changes nothing.

    If this fails: it finds the newer chunks "out of date" and migrates them downwards.
    """
    index = await opened(tmp_path)
    await index.add_chunks([chunk("a", "zebra")], [[1, 0]])
    await index.close()
    monkeypatch.setattr(engine_module, "VERSION", VERSION - 1)
    for _ in range(2):
        with pytest.raises(ConfigError, match="a newer Corral wrote this vector DB"):
            await opened(tmp_path)
    monkeypatch.undo()
    index = await opened(tmp_path)
    assert await found_by_words(index, "zebra") == ["a"]
    await index.close()
