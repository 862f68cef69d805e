"""The indexes and layout of remote::qdrant, and the limits of a server's strict mode."""

from __future__ import annotations

from typing import Any

import pytest
from qdrant_client import models

from corral.api.errors import (
    ConfigError,
    ProviderError,
)
from corral.api.testing.indexes import chunk, ids
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.records import TOKENS, VERSION

from .helpers import DB, asked_of, collection_of, filled, with_provider
from .qdrant_service import Service


@pytest.mark.parametrize("version", ["1.12.0", "1.14.0", "1.19.0"])
async def test_orderings_by_any_number_of_keys_need_no_further_index(
    service: Service, version: str
) -> None:
    """40 keys, numbers and strings, on a server that allows ten indexes and no unindexed filter.

    If this fails: orderings make an index for each key until the server refuses any, for good.
    """
    service.version = version
    service.strict["max_payload_index_count"] = 10

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        metadata: dict[str, Any] = {f"n{n}": n for n in range(20)}
        metadata |= {f"t{n}": f"2024-05-{n:02}" for n in range(20)}
        await index.add_chunks([chunk("a", "zebra", **metadata)], [[1, 0]])
        service.requests.clear()
        for n in range(20):
            for key, below, above in (
                (f"n{n}", n - 1, n),
                (f"t{n}", f"2024-05-{n:02}"[:-1], f"2024-05-{n:02}"),
            ):
                for value, found in ((below, ["a"]), (above, [])):
                    more = {"type": "gt", "key": key, "value": value}
                    for mode in ("vector", "keyword"):
                        answer = await index.query([1, 0], "zebra", mode=mode, filters=more)
                        assert ids(answer) == found, more
        assert "PUT /index" not in service.requests
        assert len(service.indexes[collection_of(provider)]) <= 6
        await provider.open_index(DB, create=True)

    await with_provider(service, use)


async def test_the_servers_limits_are_kept(service: Service) -> None:
    """Pages, upserts and the width of a search are as large as strict mode lets them be.

    If this fails: enumerating chunks or a large insert is refused by a server with strict mode.
    """
    service.strict |= {"max_query_limit": 50, "upsert_max_batchsize": 20, "search_max_hnsw_ef": 64}

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        old = [chunk(f"c{n:03}", "zebra", document_id="doc") for n in range(120)]
        await index.add_chunks(old, [[1, 0]] * 120)
        assert await index.chunk_ids() == [c.chunk_id for c in old]
        new = [chunk("new", "zebra", document_id="doc")]
        await index.add_chunks(new, [[1, 0]], replace_documents={"doc"})
        assert await index.chunk_ids() == ["new"]
        assert ids(await index.query([1, 0], mode="vector")) == ["new"]
        [searched] = [b for b in asked_of(service, "POST /points/query") if b["using"] == "dense"]
        assert searched["params"]["hnsw_ef"] == 64

    await with_provider(service, use)


@pytest.mark.parametrize("version", ["1.14.0", "1.19.0"])
async def test_what_strict_mode_refuses_is_said_in_the_servers_words(
    service: Service, version: str
) -> None:
    """A limit that cannot be kept is told with its number; api_key is not blamed for the 403."""
    service.version = version

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.strict["max_query_limit"] = 5
        with pytest.raises(ProviderError, match=r'Limit exceeded 20 > 5 for "limit"') as caught:
            await index.query([1, 0], k=10, mode="vector")
        assert "api_key" not in str(caught.value)

    await with_provider(service, use)


async def test_refusals_of_configuration_carry_the_servers_words(service: Service) -> None:
    """Making a collection or an index that the server refuses says what it says."""
    service.strict["max_payload_index_count"] = 3

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError, match=r"maximum number of payload indices \(3\)"):
            await provider.open_index(DB, create=True)
        assert not service.store.collection_exists(collection_of(provider))
        service.broken["PUT "] = 422
        with pytest.raises(ProviderError, match="no, because of"):
            await provider.open_index(DB, create=True)

    await with_provider(service, use)


async def test_integer_indexes_get_no_graph(service: Service) -> None:
    """The graph knows no terms: `enable_hnsw` is off where filters of people never look.

    If this fails: the server builds a graph of its own for each common word (1.17 and newer).
    """

    async def use(provider: QdrantProvider) -> None:
        await provider.open_index(DB, create=True)
        indexes = service.indexes[collection_of(provider)]
        for name in ("terms", "length", "reference", "order"):
            assert indexes[name]["enable_hnsw"] is False, name
        assert indexes["attributes"].get("enable_hnsw") is not False

    await with_provider(service, use)


async def test_a_newer_layout_is_refused_and_left_alone(service: Service) -> None:
    """An older Corral that opens what a newer one has written says so, and changes nothing.

    If this fails: it finds the newer chunks "out of date" and migrates them downwards.
    """

    async def use(provider: QdrantProvider) -> None:
        await filled(provider)
        indexes = service.indexes[collection_of(provider)]
        indexes[f"version_{VERSION + 1}"] = indexes.pop(f"version_{VERSION}")
        service.requests.clear()
        for create_ in (False, True):
            with pytest.raises(ConfigError, match="a newer Corral wrote this vector DB"):
                await provider.open_index(DB, create=create_)
        assert "PUT /points" not in service.requests
        indexes[f"version_{VERSION}"] = indexes.pop(f"version_{VERSION + 1}")
        index = await provider.open_index(DB)
        assert await index.count() == 3

    await with_provider(service, use)


async def test_an_older_layout_is_brought_up_to_date(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of an earlier version are rewritten, and indexes that it lacked are made.

    If this fails: a filter by a number misses chunks that were stored before an upgrade.
    """

    async def use(provider: QdrantProvider) -> None:
        await filled(provider)
        name = collection_of(provider)
        for field in ("order", f"version_{VERSION}"):
            del service.indexes[name][field]
        for field in ("terms", "length", "reference"):
            del service.indexes[name][field]["enable_hnsw"]
        service.store.delete_payload(name, ["order"], models.Filter())
        service.store.set_payload(name, {"attributes": [TOKENS.version(2)]}, models.Filter())
        index = await provider.open_index(DB)
        more = {"type": "gte", "key": "x", "value": 2}
        assert ids(await index.query([1, 0], mode="vector", filters=more)) == ["c", "b"]
        assert f"version_{VERSION}" in service.indexes[name]
        assert service.indexes[name]["terms"]["enable_hnsw"] is False
        service.requests.clear()
        await provider.open_index(DB)
        assert "PUT /points" not in service.requests

    await with_provider(service, use)
