"""What Llama Stack's own suite and documentation (v0.2.12) send, with the unmodified client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from llama_stack_client import BadRequestError, LlamaStackClient

from corral.providers.base.config import RagSettings
from corral.providers.ingestion.ingest import Ingester
from corral.providers.ingestion.read.fetching import Fetcher

from .harness import DIMENSION, InProcess, live_server, run_config

HOST = "docs.example.org"


@pytest.fixture
def client(url: str) -> Iterator[LlamaStackClient]:
    """Yield the client with a vector DB `db`."""
    with LlamaStackClient(base_url=url, timeout=30, max_retries=0) as opened:
        opened.vector_dbs.register(vector_db_id="db", embedding_model="hashing")
        yield opened


def contents(client: LlamaStackClient, question: str) -> list[str]:
    """Return the texts of the chunks that a question finds."""
    found = client.vector_io.query(vector_db_id="db", query=question)
    return [str(chunk.content) for chunk in found.chunks]


def test_their_fixtures_find_an_inference_provider(client: LlamaStackClient) -> None:
    """A provider of `inference` has the embedding model, and a vector DB registers with both.

    If this fails: their suite ends in its fixtures, before its first test.
    """
    inference = [p.provider_id for p in client.providers.list() if p.api == "inference"]
    models = [m for m in client.models.list() if m.api_model_type == "embedding"]
    assert inference == ["hashing", "extractive"]
    assert [m.provider_id for m in models] == ["hashing"]
    assert models[0].metadata["embedding_dimension"] == DIMENSION
    shown = client.providers.retrieve("hashing")
    assert (shown.api, (shown.model_extra or {})["kind"]) == ("inference", "embedding")
    vector_io = [p.provider_id for p in client.providers.list() if p.api == "vector_io"]
    registered = client.vector_dbs.register(
        vector_db_id="theirs",
        embedding_model=models[0].identifier,
        embedding_dimension=DIMENSION,
        provider_id=vector_io[0],
    )
    assert registered.identifier == "theirs"


def test_chunks_as_their_documentation_sends_them(client: LlamaStackClient) -> None:
    """`mime_type` in a chunk is accepted, and nothing of it is stored or shown."""
    chunk: Any = {
        "content": "torchtune is a library",
        "mime_type": "text/plain",
        "metadata": {"document_id": "d"},
    }
    client.vector_io.insert(vector_db_id="db", chunks=[chunk])
    (found,) = client.vector_io.query(vector_db_id="db", query="torchtune").chunks
    assert found.content == "torchtune is a library"
    assert found.metadata == {"document_id": "d"}
    assert "mime_type" not in (found.model_extra or {})


def test_stored_chunk_id_is_the_chunk_id(client: LlamaStackClient) -> None:
    """Newer clients name it so: the same id replaces, two ids that differ are refused.

    If this fails: chunks of newer clients are refused, or doubled by every second insert.
    """
    chunk: Any = {"content": "the fox", "stored_chunk_id": "mine", "metadata": {}}
    client.vector_io.insert(vector_db_id="db", chunks=[chunk])
    newer: Any = {**chunk, "content": "the owl", "chunk_id": "mine"}
    client.vector_io.insert(vector_db_id="db", chunks=[newer])
    (found,) = client.vector_io.query(vector_db_id="db", query="fox owl").chunks
    extra = found.model_extra or {}
    assert (found.content, extra["chunk_id"]) == ("the owl", "mine")
    assert "stored_chunk_id" not in extra
    for wrong in ({"chunk_id": "b"}, {"stored_chunk_id": 5}, {"stored_chunk_id": "x" * 256}):
        refused: Any = {**chunk, **wrong}
        with pytest.raises(BadRequestError, match="chunk"):
            client.vector_io.insert(vector_db_id="db", chunks=[refused])
    assert contents(client, "fox owl") == ["the owl"]


def document(content: Any) -> Any:
    """Return a document as their RAG example sends it."""
    return {"document_id": "d", "content": content, "mime_type": "text/plain", "metadata": {}}


def insert(client: LlamaStackClient, content: Any) -> None:
    """Insert one document."""
    client.tool_runtime.rag_tool.insert(
        documents=[document(content)], vector_db_id="db", chunk_size_in_tokens=64
    )


def test_an_address_is_refused_where_it_is_not_allowed(client: LlamaStackClient) -> None:
    """A content that is one http(s) address is the document there, refused by default.

    If this fails: the address itself is stored and comes back as the context.
    """
    for address in (f"https://{HOST}/chat.rst", f" HTTP://{HOST}:80/a?b=c#d\n", "https://[::1]/"):
        with pytest.raises(BadRequestError, match=r"rag\.allowed_url_hosts"):
            insert(client, address)
    assert contents(client, "https docs example org chat rst") == []


def test_other_texts_with_an_address_are_text(client: LlamaStackClient) -> None:
    """Words beside an address, another scheme, and a text item that is one address are text."""
    texts = [
        f"see https://{HOST}/fox",
        "file:///fox/passwd",
        {"type": "text", "text": f"https://{HOST}/fox"},
    ]
    for content in texts:
        insert(client, content)
        text = content["text"] if isinstance(content, dict) else content
        assert contents(client, "fox") == [text]


class _Page(BaseHTTPRequestHandler):
    """A page of the web."""

    def do_GET(self) -> None:
        body = b"torchtune fine-tunes models"
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[int]:
    """Yield the port of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(timeout=30)


async def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_an_address_is_fetched_where_it_is_allowed(
    tmp_path: Path, site: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their RAG example: the address as a plain string gives the document's text."""
    allowed = RagSettings(allowed_url_hosts=[HOST])
    fetcher = Fetcher(allowed, is_public=lambda address: True, resolver=_here)
    monkeypatch.setattr("corral.providers.stack.stack.Ingester", partial(Ingester, fetcher=fetcher))
    with live_server(run_config(), tmp_path) as url, LlamaStackClient(base_url=url) as client:
        client.vector_dbs.register(vector_db_id="db", embedding_model="hashing")
        insert(client, f"http://{HOST}:{site}/chat.rst")
        assert contents(client, "torchtune") == ["torchtune fine-tunes models"]


def test_the_schema_shows_both(app: InProcess) -> None:
    """What is accepted is documented."""
    schemas = app.ok("GET", "/openapi.json")["components"]["schemas"]
    assert {"mime_type", "stored_chunk_id"} <= set(schemas["InsertedChunk"]["properties"])
    assert not {"mime_type", "stored_chunk_id"} & set(schemas["Chunk"]["properties"])
