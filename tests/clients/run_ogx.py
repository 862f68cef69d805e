"""The newest OGX client's side of a test: every method that it has for the routes of Corral.

Run with its folder on PYTHONPATH and the address of a Corral server. Prints "ok" at the end.
"""

from __future__ import annotations

import sys
from typing import Any

import ogx_client

DIMENSION = 256
REGISTERED = {"embedding_model": "hashing", "embedding_dimension": DIMENSION}


def main(address: str) -> None:
    """Go through the life of a store."""
    client: Any = ogx_client.OgxClient(base_url=address)
    about_the_server(client)
    expiry = '{"anchor": "created_at", "seconds": 3600}'
    more: Any = {"purpose": "assistants", "expires_after": expiry}
    file = client.files.create(file=("fox.txt", b"the fox"), **more)
    assert file.expires_at == file.created_at + 3600
    assert [each.id for each in client.files.list()] == [file.id]
    assert client.files.retrieve(file.id).filename == "fox.txt"
    assert client.files.content(file.id) is not None

    stores = client.vector_stores
    more = {**REGISTERED, "provider_id": "sqlite"}
    store = stores.create(name="docs", metadata={"a": "b"}, extra_body=more)
    assert stores.retrieve(store.id).name == "docs"
    assert stores.update(store.id, name="papers").name == "papers"
    assert [each.id for each in stores.list()] == [store.id]
    files_of_a_store(stores, store.id, file.id)
    chunks_of_a_store(client, store.id)

    assert stores.delete(store.id).deleted
    assert client.files.delete(file.id).deleted
    try:
        stores.retrieve(store.id)
    except ogx_client.exceptions.NotFoundException:
        print("ok")  # noqa: T201 - the test reads it


def about_the_server(client: Any) -> None:
    """Read what the server is and has."""
    assert client.inspect.health().status == "OK"
    assert client.inspect.version().version
    served = [provider.api for provider in client.providers.list()]
    assert sorted(set(served)) == ["files", "inference", "tool_runtime", "vector_io"]
    assert client.providers.retrieve("files").api == "files"
    assert client.models.retrieve("hashing").id == "hashing"
    assert client.embeddings.create(model="hashing", input="fox").data[0].embedding


def files_of_a_store(stores: Any, store: str, file: str) -> None:
    """Attach a file, alone and in a batch, without waiting for it, and read it."""
    files, batches = stores.files, stores.file_batches
    attached = files.create(
        vector_store_id=store, file_id=file, attributes={"n": 1}, extra_body=REGISTERED
    )
    assert attached.status == "completed", attached
    assert [each.id for each in files.list(store)] == [file]
    changed = files.update(vector_store_id=store, file_id=file, attributes={"n": 2})
    assert changed.attributes["n"] == 2
    (plain,) = files.content(vector_store_id=store, file_id=file).data
    assert (plain.text, plain.embedding) == ("the fox", None)
    more = {"include_embeddings": True, "include_metadata": True}
    (full,) = files.content(vector_store_id=store, file_id=file, **more).data
    assert (len(full.embedding), full.metadata["n"]) == (DIMENSION, 2)
    for filters in ({"n": 2}, {"type": "eq", "key": "n", "value": 2}):
        (found,) = stores.search(store, query="fox", filters=filters, search_mode="hybrid").data
        assert found.content[0].text == "the fox"
    assert files.delete(vector_store_id=store, file_id=file).deleted

    batch = batches.create(vector_store_id=store, file_ids=[file], extra_body=REGISTERED)
    assert batch.status == "completed", batch
    which = {"vector_store_id": store, "batch_id": batch.id}
    assert batches.retrieve(**which).file_counts.completed == 1
    assert [each.id for each in batches.list_files(**which)] == [file]
    assert batches.cancel(**which).id == batch.id


def chunks_of_a_store(client: Any, store: str) -> None:
    """Insert a chunk that is embedded already, and query it."""
    chunk = {
        "content": "the hound",
        "chunk_id": "c",
        "chunk_metadata": {"document_id": "d", "content_token_count": 2},
        "metadata": {"document_id": "d"},
        "embedding": [1.0] + [0.0] * (DIMENSION - 1),
        **REGISTERED,
    }
    client.vector_io.insert(vector_store_id=store, chunks=[chunk])
    asked = client.vector_io.query(vector_store_id=store, query="hound", params={"max_chunks": 1})
    (found,) = asked.chunks
    assert (found.content, found.embedding_model) == ("the hound", "hashing")


if __name__ == "__main__":
    main(sys.argv[1])
