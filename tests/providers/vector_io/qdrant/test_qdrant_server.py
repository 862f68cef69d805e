"""remote::qdrant over a real connection: the whole way, in few requests."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import (
    NotFound,
    ProviderError,
)
from corral.api.testing.indexes import chunk, ids
from corral.providers.vector_io.qdrant.client import make_client
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider

from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from .helpers import DB, filled, with_provider
from .qdrant_service import Service


async def test_every_operation_works_over_http(service: Service) -> None:
    """Make, add, search in all modes with a filter, get, list, replace, delete, reopen, drop."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        assert ids(await index.query([1, 0], mode="vector")) == ["a", "c", "b"]
        assert ids(await index.query(None, "zebra", mode="keyword")) == ["a", "c"]
        more = {"type": "gt", "key": "x", "value": 1}
        assert ids(await index.query([1, 0], "zebra", mode="hybrid", filters=more)) == ["c", "b"]
        found = await index.get_chunks(["b", "a"], include_embeddings=True)
        assert [(c.chunk_id, c.embedding) for c in found] == [("b", [0, 1]), ("a", [1, 0])]
        document = chunk("d", "okapi", document_id="doc")
        await index.add_chunks([document], [[1, 0]])
        newer = chunk("e", "okapi", document_id="doc")
        await index.add_chunks([newer], [[1, 0]], replace_documents={"doc"})
        await index.delete_chunks(["b"])
        index = await provider.open_index(DB)
        assert await index.count() == 3
        assert ids(await index.query(None, "okapi", mode="keyword")) == ["e"]
        await index.delete()
        with pytest.raises(NotFound):
            await provider.open_index(DB)

    await with_provider(service, use)


async def test_the_api_key_is_sent_and_never_shown(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request carries the key; neither the config, an error nor a log shows it."""
    caplog.set_level(logging.DEBUG)
    service.broken["PUT "] = 403

    async def use(provider: QdrantProvider) -> str:
        with pytest.raises(ProviderError) as caught:
            await provider.open_index(DB, create=True)
        return str(caught.value)

    with pytest.warns(UserWarning, match="insecure"):  # the client's own, about http
        message = await with_provider(service, use, api_key="qd-very-secret")
    assert service.api_keys == {"qd-very-secret"}
    assert "refuses access" in message
    config = QdrantConfig.model_validate({"api_key": "qd-very-secret"})
    assert "secret" not in f"{message} {config!r} {caplog.text}".replace("SecretStr", "")


@pytest.mark.parametrize(
    ("url", "checks"), [("http://a", False), ("https://a", True), ("HTTPS://a", True)]
)
async def test_the_certificate_of_a_server_is_checked(
    monkeypatch: pytest.MonkeyPatch, url: str, checks: bool
) -> None:
    """However the scheme is written; plain http loads no certificates.

    If this fails with HTTPS://: anybody on the way can pass for the server.
    """
    seen: list[object] = []

    def client(**options: Any) -> httpx.AsyncClient:
        seen.append(options["verify"])
        return httpx.AsyncClient(**options)

    monkeypatch.setattr("qdrant_client.http.api_client.AsyncClient", client)
    await make_client(QdrantConfig(url=url)).close()
    assert seen == [checks]


async def test_answers_are_asked_for_uncompressed(service: Service) -> None:
    """No request accepts a compressed answer.

    If this fails: a server (1.18.3) sends the headers of one above 1 KiB first, and its body waits
    40 ms for their acknowledgment, in each query.
    """

    async def use(provider: QdrantProvider) -> None:
        await (await filled(provider)).query([1, 0], "zebra", mode="hybrid")

    await with_provider(service, use)
    assert service.encodings == {"identity"}


async def test_a_new_collection_takes_few_requests(service: Service) -> None:
    """Is it there, make it, its settings, six indexes: nothing in it was stored by another version.

    If this fails: each is a round trip, which a far server makes dear.
    """

    async def use(provider: QdrantProvider) -> None:
        await provider.health()  # which has asked for the server's version
        service.requests.clear()
        await provider.open_index(DB, create=True)
        assert service.requests == ["GET /exists", "PUT ", "GET ", *["PUT /index"] * 6]

    await with_provider(service, use)


async def test_a_query_takes_few_requests(service: Service) -> None:
    """Vector: one search. Keyword: all counts at once, with whether the server is at rest, then
    one search. Then the chunks.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.requests.clear()
        await index.query([1, 0], mode="vector")
        assert service.requests == ["POST /points/query", "POST /points"]
        service.requests.clear()
        await index.query(None, "zebra lion", mode="keyword")
        counted = ["GET "] + ["POST /facet"] * 2 + ["POST /points/count"] * 2
        assert sorted(service.requests[:5]) == counted
        assert service.requests[5:] == ["POST /points/query", "POST /points"]

    await with_provider(service, use)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "localhost:6333"},
        {"url": "file:///etc"},
        {"timeout": 5},
        {"timeout_seconds": 0},
        {"collection_prefix": "a/b"},
        {"transport": "http3"},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    """Unknown keys, urls without a scheme, and prefixes that are paths."""
    with pytest.raises(ValidationError):
        QdrantConfig(**settings)


async def test_nothing_is_kept_outside_of_the_collection(service: Service) -> None:
    """Another provider, in another process's place, finds the same answers in what is stored.

    If this fails: statistics or ids live in the memory of the provider.
    """

    async def fill(provider: QdrantProvider) -> Any:
        await filled(provider)
        return await read(provider)

    async def read(provider: QdrantProvider) -> Any:
        index = await provider.open_index(DB)
        found = await index.query([1, 0], "zebra lion", mode="hybrid")
        return ids(found), found.scores

    assert await with_provider(service, fill) == await with_provider(service, read)


async def test_unknown_metadata_keys_stay_out_of_paths(service: Service) -> None:
    """Ordering by a hostile key asks for an index of a hashed field, not of the key."""

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        key = 'a.b[0]"; $x'
        await index.add_chunks([Chunk(content="x", chunk_id="a", metadata={key: 5})], [[1, 0]])
        found = await index.query(
            [1, 0], mode="vector", filters={"type": "gt", "key": key, "value": 4}
        )
        assert ids(found) == ["a"]

    await with_provider(service, use)


async def test_an_orphan_is_found_and_removed(service: Service) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    await with_provider(service, check_orphans)


async def test_installations_delete_only_their_own(service: Service, tmp_path: Path) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    config = {"url": service.url}
    await check_installations(tmp_path, "remote::qdrant", config)
    await check_pruning_beside(tmp_path, "remote::qdrant", config)
