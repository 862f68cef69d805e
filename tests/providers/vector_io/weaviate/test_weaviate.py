"""remote::weaviate beyond the conformance suite: settings, names, what the server is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from weaviate.proto.v1 import base_pb2

from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.tokens import TOKENS
from corral.providers.vector_io.weaviate import provider
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import create

from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from .helpers import chunks, configured, found, opened, vector_db, vectors
from .stand_in import StandIn


@pytest.mark.parametrize(
    "config",
    [
        {"url": "127.0.0.1:8080"},
        {"url": "http://user:secret@host"},
        {"url": "http://host/path"},
        {"collection_prefix": "lower"},
        {"timeout_seconds": 0},
        {"colour": "red"},
    ],
)
def test_settings_that_cannot_work_are_refused(config: dict[str, Any]) -> None:
    """A wrong address, a prefix that no collection may have, an unknown key."""
    with pytest.raises(ValidationError):
        WeaviateConfig.model_validate(config)


def test_names_of_collections() -> None:
    """They depend on the id and the time of registration, and are names that Weaviate takes."""
    names = {
        stored_name(vector_db(identifier=i, created_at=t), "Corral_")
        for i in ("a", "A", "../x", "天气")
        for t in (1.0, 2.0)
    }
    assert len(names) == 8
    assert all(name.startswith("Corral_") and name.isascii() for name in names)
    assert all(name.removeprefix("Corral_").isalnum() for name in names)


def test_the_factory_is_that_of_the_spec() -> None:
    """The spec names the config and the factory that exist."""
    from corral.providers.vector_io.weaviate import SPEC

    assert SPEC.factory == f"{provider.__name__}:{create.__name__}"
    assert SPEC.config == f"{WeaviateConfig.__module__}:{WeaviateConfig.__name__}"
    assert "tested on servers of 1.33 and 1.39" in SPEC.description


async def test_the_schema_leaves_nothing_to_the_servers_defaults(server: StandIn) -> None:
    """No vectorizer, no compression, no stop words, and tokenizers that change nothing.

    If this fails: a server's default vectorizes texts, drops words or rounds vectors.
    """

    async with opened(server, metric="l2", normalize=False):
        pass
    [made] = server.classes.values()
    dense = made.config["vectorConfig"]["dense"]
    assert dense["vectorizer"] == {"none": {}}
    assert dense["vectorIndexConfig"]["distance"] == "l2-squared"
    assert dense["vectorIndexConfig"]["skipDefaultQuantization"] is True
    inverted = made.config["invertedIndexConfig"]
    assert inverted["stopwords"]["preset"] == "none"
    assert inverted["bm25"] == {"k1": 1.2, "b": 0.75}
    assert made.property("attributes")["tokenization"] == "field"
    assert made.property("terms")["tokenization"] == "whitespace"
    assert made.property("content")["indexFilterable"] is False
    assert made.property("content")["indexSearchable"] is False


@pytest.mark.parametrize(
    ("metric", "normalize", "distance"),
    [
        ("cosine", True, "cosine"),
        ("l2", True, "cosine"),
        ("dot", True, "cosine"),
        ("cosine", False, "cosine"),
        ("l2", False, "l2-squared"),
        ("dot", False, "dot"),
    ],
)
async def test_the_distance_is_that_of_the_registration(
    server: StandIn, metric: str, normalize: bool, distance: str
) -> None:
    """Unit vectors are compared by cosine, whatever the metric; others by their own."""

    async with opened(server, config={"index": "flat"}, metric=metric, normalize=normalize):
        pass
    [made] = server.classes.values()
    dense = made.config["vectorConfig"]["dense"]
    assert dense["vectorIndexType"] == "flat"
    assert dense["vectorIndexConfig"]["distance"] == distance


@pytest.mark.parametrize("replicas", [None, 3])
async def test_copies_catch_up_with_what_they_missed(server: StandIn, replicas: int | None) -> None:
    """Replicas compare themselves in the background, and the newest state of an object wins.

    If this fails: a node that was down never learns what was written meanwhile, because a write
    with consistency level ALL goes on without nodes that are known to be down (1.33.0, 1.39.0).
    """

    async with opened(server, config={"replicas": replicas}):
        pass
    [made] = server.classes.values()
    assert made.config["replicationConfig"]["asyncEnabled"]
    assert made.config["replicationConfig"]["deletionStrategy"] == "TimeBasedResolution"


async def test_the_replication_factor_is_the_servers_unless_configured(server: StandIn) -> None:
    """A server that demands three copies gets them; a smaller number fails with its own words.

    If this fails: no vector DB can be made in Weaviate Cloud, or nobody learns why.
    """
    server.minimum_factor = 3
    with pytest.raises(ConfigError, match="minimum replication factor of 3: got 2"):
        await configured(server, replicas=2).open_index(vector_db(), create=True)
    assert not server.classes

    async with opened(server):
        pass
    [made] = server.classes.values()
    assert made.config["replicationConfig"]["factor"] == 3


async def test_a_newer_layout_is_refused_and_left_as_it_is(server: StandIn) -> None:
    """A collection that a newer Corral wrote is not opened, nor rewritten; one without a layout is
    signed.

    If this fails: an older Corral beside a newer one turns its chunks back.
    """

    async def fill(one: EngineIndex) -> None:
        await one.add_chunks(chunks("a"), vectors(1))

    async with opened(server) as one:
        await fill(one)
    [made] = server.classes.values()
    assert made.config["description"] == "Corral layout 1"
    made.config["description"] = "Corral layout 2"
    before = len(server.requests)
    for create_it in (True, False):
        with pytest.raises(ConfigError, match="newer Corral"):
            await configured(server).open_index(vector_db(), create=create_it)
    assert not [name for name, _ in server.requests[before:] if name == "BatchObjects"]
    made.config["description"] = ""
    async with opened(server) as one:
        await fill(one)
    assert made.config["description"] == "Corral layout 1"


async def test_a_new_analyzer_finds_all_terms_anew(
    server: StandIn,
) -> None:
    """Chunks of another version of the analyzer are written anew when the index is opened."""

    async def fill(one: EngineIndex) -> None:
        await one.add_chunks(chunks("a", "b"), [[3, 4], [0, 2]])

    settings: dict[str, Any] = {"metric": "cosine", "normalize": False}
    async with opened(server, **settings) as one:
        await fill(one)
    [made] = server.classes.values()
    for stored in made.objects.values():
        stored.properties["terms"], stored.properties["frequencies"] = "other", '{"other": 1.0}'
        tokens = stored.properties["attributes"]
        tokens[tokens.index(TOKENS.version(ANALYZER_VERSION))] = TOKENS.version(1)
    made.changed()

    async def ask(one: EngineIndex) -> None:
        assert await found(one) == ["a", "b"]
        assert await found(one, "other") == []
        stored = await one.get_chunks(["a"], include_embeddings=True)
        assert stored[0].embedding == [3.0, 4.0]

    async with opened(server, **settings) as one:
        await ask(one)
    server.requests.clear()
    async with opened(server, **settings) as one:
        await ask(one)
    assert not [name for name, _ in server.requests if name == "BatchObjects"]


async def test_writes_wait_for_all_replicas(server: StandIn) -> None:
    """With replicas every write asks for consistency level ALL, so that any replica can answer."""

    async with opened(server, config={"replicas": 3}) as one:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        await one.delete_chunks(["b"])
    [made] = server.classes.values()
    assert made.config["replicationConfig"]["factor"] == 3
    writes = [message for name, message in server.requests if name.startswith("Batch")]
    assert len(writes) == 3  # objects, their flush, a deletion
    assert {one.consistency_level for one in writes} == {base_pb2.CONSISTENCY_LEVEL_ALL}


async def test_filters_carry_no_text_of_users(server: StandIn) -> None:
    """Keys and values go out as tokens: nothing in them can mean anything to the server."""

    async with opened(server) as one:
        for kind in ("eq", "ne", "lt"):
            await found(one, filters={"type": kind, "key": "Secret", "value": "Hidden"})
    searches = [message for name, message in server.requests if name == "Search"]
    assert len([one for one in searches if one.HasField("filters")]) == 3
    assert not any("Secret" in str(one) or "Hidden" in str(one) for one in searches)


async def test_an_orphan_is_found_and_removed(server: StandIn) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""

    provider = configured(server)
    await check_orphans(provider)
    await provider.close()


async def test_installations_delete_only_their_own(server: StandIn, tmp_path: Path) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    await check_installations(tmp_path, "remote::weaviate", server.config)
    await check_pruning_beside(tmp_path, "remote::weaviate", server.config)
