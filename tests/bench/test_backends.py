"""Backends are found by name, opened in a scratch folder, and leave nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, InvalidRequest, MissingDependency, UnknownProvider
from corral.api.vector_dbs import SearchMode
from corral.bench import peers
from corral.bench.backends import Backend, backend_names, find_backends, load_peer, prepared
from corral.bench.quality.fusions import label_of, parse_fusion
from corral.bench.system import SHARE_KEY, Collection, CorralSystem, Ranked, Search
from corral.providers.base.config import RunConfig

from .foreign import Exact, install

CONFIG = RunConfig.model_validate(
    {
        "providers": {
            "vector_io": [
                {"provider_id": "graph", "provider_type": "inline::faiss",
                 "config": {"index": "hnsw"}},
                {"provider_id": "pg", "provider_type": "remote::pgvector",
                 "config": {"port": 1, "connect_timeout_seconds": 1}},
            ]
        }
    }
)  # fmt: skip
COLLECTION = Collection("test", 8)


def rows(count: int) -> NDArray[np.float32]:
    """Return seeded unit vectors of dimension 8."""
    found = np.random.default_rng(0).standard_normal((count, 8), dtype=np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(found, axis=1, keepdims=True)
    return found / lengths


def chunks(count: int) -> list[Chunk]:
    """Return chunks c000, c001, ..., each with a word of its own."""
    return [
        Chunk(chunk_id=f"c{n:03d}", content=f"common word{n}", metadata={SHARE_KEY: n})
        for n in range(count)
    ]


def test_the_built_in_names() -> None:
    """Inline providers by their names, remote ones with -remote where an inline one has theirs."""
    assert set(backend_names()) >= {
        "memory", "sqlite", "faiss", "lancedb", "chroma", "qdrant", "milvus",
        "pgvector", "chroma-remote", "milvus-remote", "qdrant-remote", "weaviate", "opensearch",
    }  # fmt: skip
    assert [b.name for b in find_backends([" sqlite", "faiss "])] == ["sqlite", "faiss"]


def test_bare_engines_are_those_of_the_backends() -> None:
    """`bare-engines` names the engines of the other backends, once, and no service.

    If this fails: a person measures every foreign system, or none beside their backend.
    """
    names = [b.name for b in find_backends(["qdrant", "memory", "bare-engines", "faiss-flat"])]
    assert names == ["qdrant", "memory", "faiss-flat", "qdrant-edge"]
    assert [b.name for b in find_backends(["milvus", "bare-engines"])] == ["milvus"]
    with pytest.raises(InvalidRequest, match="No backend is named"):
        find_backends(["bare-engines"])


def test_the_configuration_goes_first() -> None:
    """An entry is found by its id, and by its type's name where that is not an id."""
    graph, by_type, service = find_backends(["graph", "faiss", "pgvector"], CONFIG)
    assert graph.entry is not None
    assert graph.entry.config == {"index": "hnsw"}
    assert graph.entry == by_type.entry
    assert service.entry is not None
    assert service.entry.provider_id == "pg"
    assert set(graph.modes) == set(SearchMode)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["sqlit"], UnknownProvider, r"'sqlit'.*Did you mean 'sqlite'\? Known: .*memory"),
        (
            ["pgvector"],
            InvalidRequest,
            "needs the address of a service.*--config .*remote::pgvector",
        ),
        (["sqlite=http://x"], InvalidRequest, "sqlite takes no address"),
        (["sqlite", "faiss", "sqlite"], InvalidRequest, "'sqlite' is named twice"),
        ([], InvalidRequest, "No backend is named. Known: "),
        (["service"], InvalidRequest, "service=ADDRESS"),
        (["exact=x"], InvalidRequest, "named as exact"),
    ],
)
def test_what_is_no_backend(
    monkeypatch: pytest.MonkeyPatch, names: list[str], error: type[Exception], message: str
) -> None:
    """An unknown name, a service without settings, an address in the wrong place, a repetition."""
    install(monkeypatch)
    with pytest.raises(error, match=message):
        find_backends(names)


def test_an_adapter_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in bench/peers is found by its name; listing imports none of them."""
    (tmp_path / "some_name.py").write_text("from tests_foreign import PEER\n", encoding="utf-8")
    (tmp_path / "bad_one.py").write_text("raise ImportError\n", encoding="utf-8")
    monkeypatch.setattr(peers, "__path__", [*peers.__path__, str(tmp_path)])
    assert {"some-name", "bad-one"} <= set(backend_names())
    install(monkeypatch, {"tests_foreign": Exact})
    (tmp_path / "own_file.py").write_text(
        f"from {peers.__name__}.tests_foreign import PEER\n", encoding="utf-8"
    )
    assert load_peer("own-file") is Exact


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign system whose package is absent says how to install it."""
    install(monkeypatch)
    (missing,) = find_backends(["missing"])
    with pytest.raises(MissingDependency, match="pip install corral-no-such-thing"):
        missing.open(tmp_path)


@pytest.mark.parametrize("name", ["memory", "sqlite", "faiss"])
async def test_a_backend_answers_in_every_mode(name: str, tmp_path: Path) -> None:
    """Stored chunks are found by embedding, by word and by both, with fusion and filter."""

    async def work() -> dict[str, Ranked]:
        (backend,) = find_backends([name])
        async with prepared(backend, tmp_path, COLLECTION) as system:
            await system.add(chunks(600), rows(600))  # more than an embedder is handed at once
            await system.build()
            found = {
                mode.value: await system.search(Search(mode, "word7", rows(600)[7], 3))
                for mode in SearchMode
            }
            ranker = parse_fusion('{"type": "weighted", "alpha": 0.0}')
            words = await system.search(
                Search(SearchMode.HYBRID, "word8", rows(600)[7], 3, ranker=ranker)
            )
            few = await system.search(Search(SearchMode.VECTOR, "word7", rows(600)[7], 9, 5))
        return {**found, "words": words, "few": few}

    found = await work()
    assert [found[mode.value][0][0] for mode in SearchMode] == ["c007"] * 3
    assert found["words"][0][0] == "c008"
    assert sorted(one for one, _ in found["few"]) == [f"c{n:03d}" for n in range(5)]


async def test_queries_at_once_keep_their_embeddings(tmp_path: Path) -> None:
    """Fifty searches under way at once each find their own chunk.

    If this fails: the embedding of a query reached another query's search.
    """

    async def work() -> list[Ranked]:
        (backend,) = find_backends(["sqlite"])
        async with prepared(backend, tmp_path, COLLECTION) as system:
            await system.add(chunks(50), rows(50))
            return await asyncio.gather(
                *(system.search(Search(SearchMode.VECTOR, "same text", row, 1)) for row in rows(50))
            )

    assert [hits[0][0] for hits in await work()] == [f"c{n:03d}" for n in range(50)]


async def test_what_was_stored_is_gone_in_the_end(tmp_path: Path) -> None:
    """After a run, and after an error in it, the vector DB is deleted; ids never repeat."""
    seen = []

    async def work(fail: bool) -> None:
        (backend,) = find_backends(["sqlite"])
        async with prepared(backend, tmp_path, COLLECTION) as system:
            assert isinstance(system, CorralSystem)
            seen.append(system.vector_db_id)
            await system.add(chunks(3), rows(3))
            assert [v.identifier for v in await system.stack.vector_dbs()] == seen[-1:]
            assert await (await system.index()).count() == 3
            if fail:
                raise KeyError

    await work(fail=False)
    with pytest.raises(KeyError):
        await work(fail=True)
    assert len(set(seen)) == 2
    assert not list(tmp_path.rglob(f"*{seen[0]}*"))


async def test_a_backend_that_cannot_start_is_closed(tmp_path: Path) -> None:
    """A service that nobody runs raises what the provider says, and can be tried again."""

    async def work() -> None:
        (backend,) = find_backends(["pg"], CONFIG)
        async with prepared(backend, tmp_path, COLLECTION):
            raise AssertionError

    for _ in range(2):
        with pytest.raises(Exception, match="pg"):
            await work()


async def test_a_backend_with_broken_settings(tmp_path: Path) -> None:
    """Settings that the provider does not know are an error of the configuration."""
    entry = CONFIG.providers.vector_io[0].model_copy(update={"config": {"indx": "flat"}})

    async def work() -> None:
        async with prepared(Backend("graph", entry), tmp_path, COLLECTION):
            raise AssertionError

    with pytest.raises(ConfigError, match="indx"):
        await work()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("rrf", "rrf"),
        (" max ", "max"),
        ('{"type": "weighted", "alpha": 0.3}', "weighted(alpha=0.3)"),
        ('{"type": "rrf", "impact_factor": 10, "candidates": 50}',
         "rrf(candidates=50,rank_constant=10)"),
        ('{"type": "rrf", "weights": {"vector": 0.5, "keyword": 1}}', "rrf(weights=0.5/1)"),
    ],
)  # fmt: skip
def test_fusions_have_labels(text: str, label: str) -> None:
    """A fusion is named by its type and by what differs from the defaults."""
    assert label_of(parse_fusion(text)) == label


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rff", "'rff' is not a fusion.*Did you mean 'rrf'"),
        ('{"type": "weighted", "alpha": 3}', r"is not a fusion \(alpha: must be <= 1"),
        ('{"type"', "is not JSON"),
    ],
)
def test_what_is_no_fusion(text: str, message: str) -> None:
    """An unknown name, a value out of range and broken JSON are refused."""
    with pytest.raises(InvalidRequest, match=message):
        parse_fusion(text)
