"""Clients that cannot be installed beside the project's packages, each in a process of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from llama_stack_client import LlamaStackClient, NotFoundError

from ..harness import DIMENSION, Json
from .other_clients import run_client


@contextmanager
def model_server() -> Iterator[tuple[str, list[Json]]]:
    """Yield the address of a language model that answers the same to all, and what it was sent."""
    asked: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            message = {"role": "assistant", "content": "In the wood."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = json.dumps(
                {
                    "id": "c", "object": "chat.completion", "created": 0, "model": "fake",
                    "choices": [choice], "usage": usage,
                }
            ).encode()  # fmt: skip
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_litellm_searches_a_registered_store(url: str) -> None:
    """A completion with `file_search` reaches the model with what the store holds about it.

    If this fails: whoever has LiteLLM in front of its models cannot use Corral for file_search.
    """
    with httpx.Client(base_url=url, timeout=60) as http:
        store = http.post("/v1/vector_stores", json={"name": "docs"}).json()["id"]
        chunks = [{"content": "The fox lives in the wood."}]
        body = {"vector_db_id": store, "chunks": chunks}
        http.post("/v1/vector-io/insert", json=body).raise_for_status()
    with model_server() as (model, asked):
        told = json.loads(run_client("litellm", "run_litellm.py", f"{url}/v1", model, store))
    assert told["made"]["object"] == "vector_store"
    assert told["found"]["data"][0]["content"][0]["text"] == "The fox lives in the wood."
    assert told["embedding"] == DIMENSION
    assert told["answer"] == "In the wood."
    assert "The fox lives in the wood." in json.dumps(asked[-1]["messages"])
    assert told["cited"]


def test_the_newest_llama_stack_client(url: str) -> None:
    """Version 0.7.5 finds the routes of its day, which are OpenAI's own."""
    assert run_client("llama-stack", "run_llama_stack.py", url) == "ok\n"


def test_the_newest_ogx_client(url: str) -> None:
    """Version 1.5, which validates every answer, does all that it can do with Corral.

    If this fails: the client that replaces Llama Stack's cannot use Corral unmodified.
    """
    assert run_client("ogx", "run_ogx.py", url) == "ok\n"


def test_llama_stack_client_0_2_12(url: str) -> None:
    """Every method that 0.2.12 has for OpenAI's routes, all under the alias.

    If this fails: `vector_stores` and `files` of Llama Stack's client are refused again.
    """
    with LlamaStackClient(base_url=url, timeout=60, max_retries=0) as client:
        file = client.files.create(file=("fox.txt", b"the fox"), purpose="assistants")
        assert [each.id for each in client.files.list().data] == [file.id]
        assert client.files.retrieve(file.id).filename == "fox.txt"
        client.files.content(file.id)
        stores = client.vector_stores
        store = stores.create(
            name="docs",
            embedding_model="hashing",
            embedding_dimension=DIMENSION,
            provider_id="sqlite",
            metadata={"a": "b"},
        )
        assert stores.retrieve(store.id).metadata == {"a": "b"}
        assert stores.update(vector_store_id=store.id, name="papers").name == "papers"
        assert [each.id for each in stores.list().data] == [store.id]
        attached = stores.files.create(store.id, file_id=file.id, attributes={"topic": "foxes"})
        assert (attached.status, attached.chunking_strategy.type) == ("completed", "auto")
        found = stores.search(store.id, query="fox", filters={"topic": "foxes"})
        assert (found.search_query, found.data[0].content[0].text) == ("fox", "the fox")
        embedded = client.embeddings.create(model="hashing", input="fox")
        assert embedded.data[0].embedding
        assert stores.delete(store.id).deleted
        assert client.files.delete(file.id).deleted
        with pytest.raises((NotFoundError, Exception), match="400"):
            stores.retrieve(store.id)
