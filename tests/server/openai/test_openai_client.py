"""The unmodified `openai` client, sync and async, through every method of the contract's table.

Every answer is validated against the types of the `openai` package: the client itself builds its
objects without looking.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai._models import BaseModel

from ..harness import live_server, run_config

CLIENTS = [OpenAI, AsyncOpenAI]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real server on a real socket."""
    with live_server(run_config(), tmp_path_factory.mktemp("home")) as url:
        yield url


@pytest.fixture(params=CLIENTS, ids=["sync", "async"])
async def client(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Any]:
    """Yield the client; under `await got(...)` both kinds read alike."""
    opened = request.param(base_url=f"{address}/v1", api_key="none", timeout=60)
    yield opened
    await got(opened.close())


async def got(value: Any) -> Any:
    """Return what a call of either client returns, validated if it is one of its objects."""
    found = await value if inspect.isawaitable(value) else value
    for each in getattr(found, "data", None) or [found]:
        if isinstance(each, BaseModel):
            type(each).model_validate(each.to_dict(), strict=True)
    return found


async def all_of(listing: Any) -> list[Any]:
    """Return the objects of all pages."""
    if hasattr(listing, "__aiter__"):
        return [each async for each in listing]
    return list(await got(listing))


async def test_files(client: Any, tmp_path: Path) -> None:
    """Upload, list by pages, show, read and delete files."""
    path = tmp_path / "notes.txt"
    path.write_text("the fox")
    first = await got(client.files.create(file=path, purpose="user_data"))
    second = await got(
        client.files.create(
            file=("b.txt", b"the hound"),
            purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
    )
    assert second.expires_at == second.created_at + 3600
    assert (first.filename, first.bytes) == ("notes.txt", 7)
    listed = await all_of(client.files.list(limit=1, purpose="user_data"))
    assert [file.id for file in listed] == [second.id, first.id]
    assert (await got(client.files.retrieve(first.id))).id == first.id
    assert (await got(client.files.content(first.id))).content == b"the fox"
    assert (await got(client.files.wait_for_processing(first.id))).status == "processed"
    for file in (first, second):
        assert (await got(client.files.delete(file.id))).deleted
    with pytest.raises(NotFoundError) as refused:
        await got(client.files.retrieve(first.id))
    assert (refused.value.param, refused.value.code) == ("file_id", "not_found")
    assert refused.value.request_id


async def test_vector_stores(client: Any) -> None:
    """Create, list by pages, show, change, search and delete stores."""
    stores = client.vector_stores
    made = [
        await got(
            stores.create(
                name=f"store {number}",
                description="what we know",
                metadata={"n": str(number)},
                expires_after={"anchor": "last_active_at", "days": 7},
                extra_body={"search_mode": "keyword", "language": "german"},
            )
        )
        for number in range(3)
    ]
    assert made[0].search_mode == "keyword"
    assert made[0].expires_at == made[0].last_active_at + 7 * 86_400
    listed = await all_of(stores.list(limit=2, order="asc"))
    assert [store.id for store in listed if store in made] == [store.id for store in made]
    shown = await got(stores.retrieve(made[1].id))
    assert (shown.name, shown.metadata) == ("store 1", {"n": "1"})
    changed = await got(stores.update(made[1].id, name="other", metadata={"n": "x"}))
    assert (changed.name, changed.metadata, changed.description) == (
        "other",
        {"n": "x"},
        "what we know",
    )
    found = await got(stores.search(made[1].id, query=["fox", "hound"], max_num_results=5))
    assert found.data == []
    for store in made:
        assert (await got(stores.delete(store.id))).deleted
    with pytest.raises(NotFoundError):
        await got(stores.retrieve(made[1].id))


async def test_files_of_stores(client: Any) -> None:
    """Attach, poll, list, show, change, read, search by attributes, and detach."""
    stores, files = client.vector_stores, client.vector_stores.files
    store = await got(stores.create(name="docs"))
    uploaded = await got(
        files.upload_and_poll(
            vector_store_id=store.id,
            file=("fox.md", b"# Foxes\n\nThe fox lives in the wood."),
            attributes={"topic": "foxes", "year": 2024, "draft": False},
            chunking_strategy={
                "type": "static",
                "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 20},
            },
        )
    )
    assert uploaded.status == "completed"
    assert uploaded.chunking_strategy.static.max_chunk_size_tokens == 100
    other = await got(client.files.create(file=("h.txt", b"The hound."), purpose="assistants"))
    polled = await got(files.create_and_poll(other.id, vector_store_id=store.id))
    assert (polled.status, polled.attributes) == ("completed", {})
    listed = await all_of(files.list(store.id, limit=1, filter="completed"))
    assert [file.id for file in listed] == [other.id, uploaded.id]
    shown = await got(files.retrieve(uploaded.id, vector_store_id=store.id))
    assert shown.attributes == {"topic": "foxes", "year": 2024, "draft": False}
    read = await got(files.content(uploaded.id, vector_store_id=store.id))
    assert "The fox lives in the wood." in "".join(piece.text for piece in read.data)

    wanted: dict[str, Any] = {"type": "eq", "key": "topic", "value": "foxes"}
    found = await got(
        stores.search(
            store.id,
            query="where does the fox live?",
            filters={"type": "and", "filters": [wanted]},
            ranking_options={"ranker": "auto", "score_threshold": 0.1},
            rewrite_query=False,
            extra_body={"search_mode": "hybrid", "explain": True},
        )
    )
    assert [each.file_id for each in found.data] == [uploaded.id]
    assert found.search_query == ["where does the fox live?"]
    changed = await got(
        files.update(uploaded.id, vector_store_id=store.id, attributes={"topic": "animals"})
    )
    assert changed.attributes == {"topic": "animals"}
    assert (await got(files.delete(uploaded.id, vector_store_id=store.id))).deleted
    counts = (await got(stores.retrieve(store.id))).file_counts
    assert (counts.completed, counts.total) == (1, 1)
    with pytest.raises(BadRequestError) as refused:
        await got(files.create(store.id, file_id="x", attributes={"k": "v" * 600}))
    assert refused.value.param == "attributes.k"
    await got(stores.delete(store.id))


async def test_file_batches(client: Any) -> None:
    """Upload together, poll, list, show and cancel."""
    stores, batches = client.vector_stores, client.vector_stores.file_batches
    store = await got(stores.create())
    done = await got(
        batches.upload_and_poll(store.id, files=[("a.txt", b"the fox"), ("b.txt", b"the hound")])
    )
    assert (done.status, done.file_counts.completed) == ("completed", 2)
    listed = await all_of(batches.list_files(done.id, vector_store_id=store.id, limit=1))
    assert len({file.id for file in listed}) == 2
    again = await got(
        batches.create_and_poll(store.id, files=[{"file_id": listed[0].id, "attributes": {"n": 1}}])
    )
    assert again.status == "completed"
    shown = await got(batches.retrieve(again.id, vector_store_id=store.id))
    assert shown.id == again.id
    begun = await got(batches.create(store.id, file_ids=[listed[1].id]))
    cancelled = await got(batches.cancel(begun.id, vector_store_id=store.id))
    assert cancelled.file_counts.total == 1
    polled = await got(batches.poll(begun.id, vector_store_id=store.id))
    assert polled.status in ("cancelled", "completed")
    await got(stores.delete(store.id))


async def test_embeddings_and_models(client: Any) -> None:
    """Embed, by base64, which the client asks for by itself, and as floats; show the models."""
    packed = await got(client.embeddings.create(model="hashing", input=["a fox", "a hound"]))
    plain = await got(
        client.embeddings.create(
            model="hashing", input=["a fox", "a hound"], encoding_format="float"
        )
    )
    for ours, theirs in zip(packed.data, plain.data, strict=True):
        assert ours.embedding == pytest.approx(theirs.embedding, abs=1e-7)
    models = await all_of(client.models.list())
    assert [model.id for model in models] == ["hashing", "extractive"]
    assert (await got(client.models.retrieve("hashing"))).id == "hashing"
