"""The newest Llama Stack client's side of a test: every method of OpenAI's routes that it has.

Run with its folder on PYTHONPATH and the address of a Corral server. Prints "ok" at the end.
"""

from __future__ import annotations

import sys
from typing import Any

from llama_stack_client import LlamaStackClient, NotFoundError

REGISTERED = {"embedding_model": "hashing", "embedding_dimension": 256}


def main(address: str) -> None:
    """Go through the life of a store."""
    client: Any = LlamaStackClient(base_url=address, timeout=60)  # types here are of 0.2.12
    assert [model.id for model in client.models.list()] == ["hashing", "extractive"]
    assert [one.api for one in client.providers.list()].count("files") == 1
    made = client.embeddings.create(model="hashing", input="fox")
    assert made.data[0].embedding

    file = client.files.create(file=("fox.txt", b"the fox"), purpose="assistants")
    assert [each.id for each in client.files.list()] == [file.id]
    assert client.files.retrieve(file.id).filename == "fox.txt"
    assert client.files.content(file.id) is not None

    stores = client.vector_stores
    store = stores.create(name="docs", metadata={"a": "b"})
    assert stores.retrieve(store.id).name == "docs"
    assert stores.update(vector_store_id=store.id, name="papers").name == "papers"
    assert [each.id for each in stores.list()] == [store.id]

    attached = stores.files.create(
        vector_store_id=store.id, file_id=file.id, attributes={"n": 1}, extra_body=REGISTERED
    )
    assert attached.status == "completed", attached
    found = stores.search(vector_store_id=store.id, query="fox", max_num_results=1)
    assert found.data[0].content[0].text == "the fox"
    changed = stores.files.update(file.id, vector_store_id=store.id, attributes={"n": 2})
    assert changed.attributes["n"] == 2
    assert stores.files.content(file.id, vector_store_id=store.id).data[0].text == "the fox"
    assert [each.id for each in stores.files.list(store.id)] == [file.id]
    assert stores.files.delete(file.id, vector_store_id=store.id).deleted

    batch = stores.file_batches.create(store.id, file_ids=[file.id], extra_body=REGISTERED)
    batch = stores.file_batches.retrieve(batch.id, vector_store_id=store.id)
    assert batch.status == "completed", batch
    listed = stores.file_batches.list_files(batch.id, vector_store_id=store.id)
    assert [each.id for each in listed] == [file.id]
    assert stores.file_batches.cancel(batch.id, vector_store_id=store.id).id == batch.id

    chunk = {"content": "the hound", "chunk_id": "c", "chunk_metadata": {}, "metadata": {}}
    client.vector_io.insert(vector_store_id=store.id, chunks=[{**chunk, **REGISTERED}])
    asked = client.vector_io.query(vector_store_id=store.id, query="hound")
    assert "the hound" in [chunk.content for chunk in asked.chunks]
    assert stores.delete(store.id).deleted
    assert client.files.delete(file.id).deleted
    try:
        stores.retrieve(store.id)
    except NotFoundError:
        print("ok")  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1])
