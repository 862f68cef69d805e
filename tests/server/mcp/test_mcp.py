"""Corral over MCP, asked by the unmodified client of the SDK: in memory, over HTTP, over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import TextContent, TextResourceContents

from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack.stack import Stack
from corral.server.app import create_app
from corral.server.mcp.protocol import MAX_LISTED_DOCUMENTS, mcp_server
from corral.server.mcp.stdio import services_of
from corral.server.tools.reading import MAX_FETCHED_CHUNKS

from ..harness import live_server, run_config, yaml_of

ERAS = ["legacy", "2026-07-28"]
"""How a client opens: by the handshake, or by the protocol that has none."""
READING = {"search", "fetch", "rag_query", "list_vector_dbs", "get_vector_db"}
WRITES: dict[str, Any] = {"server": {"tools": {"writes": True}}}

NOTES = {
    "fence.md": "# Fences\n\nA fence keeps the cattle in.",
    "barn.md": "# Barns\n\nHay is stored dry in the barn.",
}


async def fill(stack: Stack) -> None:
    """Register `notes` and `web`, and put documents into both."""
    services = services_of(stack)
    for name in ("notes", "web"):
        await stack.register(VectorDBRegistration(vector_db_id=name, embedding_model="hashing"))
    documents = [
        RAGDocument(document_id=name, content=text, mime_type="text/markdown")
        for name, text in NOTES.items()
    ]
    await services.stack.ingestion.insert(documents, "notes")
    page = RAGDocument(
        document_id="goats",
        content="Goats jump over low walls.",
        metadata={"source": "https://example.org/goats", "kind": "page"},
    )
    await services.stack.ingestion.insert([page], "web")


@asynccontextmanager
async def in_memory(
    home: Path, mode: str, principal: Principal | None = None, **sections: Any
) -> AsyncIterator[Client]:
    """Yield a client of a server in this process, with the documents in it."""
    config = run_config(**sections)
    stack = Stack(config, home)
    try:
        await fill(stack)
        services = services_of(stack.for_principal(principal) if principal else stack)
        async with Client(mcp_server(config.server.tools, lambda _: services), mode=mode) as client:
            yield client
    finally:
        await stack.close()


def text_of(contents: Sequence[object]) -> str:
    """Return the text of a result or resource that has one content."""
    [content] = contents
    assert isinstance(content, TextContent | TextResourceContents)
    return content.text


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    return text_of((await client.read_resource(uri)).contents)


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that has to succeed; check that both forms of its answer are the same."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(text_of(result.content)) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that has to fail; return what the model reads."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return text_of(result.content)


async def ask_in_vain(client: Client) -> None:
    """An empty context says why it is empty; it is no failure."""
    unknown = await answered(client, "rag_query", question="zyzzyva", mode="keyword")
    assert (unknown["context"], unknown["reason"]) == ("", "nothing_found")
    small = await answered(client, "rag_query", question="where is hay stored?", max_tokens=64)
    assert (small["context"], small["reason"]) == ("", "budget")


async def ask_everything(client: Client) -> None:
    """Search, fetch, ask, list and show, as an agent does."""
    found = await answered(client, "search", query="what keeps cattle in?", max_results=2)
    best = found["results"][0]
    assert (best["id"], best["title"]) == ("notes/fence.md", "Fences")
    page, marked = best["url"].split("&chunk_id=")
    assert page.endswith("/document?vector_db_id=notes&document_id=fence.md")
    assert marked.endswith("#passage")
    whole = await answered(client, "fetch", id=best["id"])
    assert whole["text"] == NOTES["fence.md"]
    assert whole["metadata"]["vector_db_id"] == "notes"
    context = await answered(client, "rag_query", question="where is hay stored?", max_chunks=1)
    assert "[1]" in context["context"]
    assert context["reason"] is None
    assert "Hay is stored dry" in context["context"]
    [cited] = context["citations"]
    assert (cited["marker"], cited["id"]) == ("[1]", "notes/barn.md")
    await ask_in_vain(client)
    listed = await answered(client, "list_vector_dbs")
    assert [each["vector_db_id"] for each in listed["vector_dbs"]] == ["notes", "web"]
    shown = await answered(client, "get_vector_db", vector_db_id="notes")
    assert (shown["document_count"], shown["chunk_count"]) == (2, 2)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_searches_and_reads(tmp_path: Path, mode: str) -> None:
    """All tools answer in memory, in both eras: structured, and the same as one JSON text.

    If this fails: deep-research clients read `results` and `text` in either of the two forms.
    """
    async with in_memory(tmp_path, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        await ask_everything(client)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_source_on_the_web_is_the_address(tmp_path: Path, mode: str) -> None:
    """A document with a source address is cited by that; filters and scopes narrow a search."""
    async with in_memory(tmp_path, mode) as client:
        page = {"type": "eq", "key": "kind", "value": "page"}
        found = await answered(client, "search", query="what jumps over walls?", filters=page)
        [only] = found["results"]
        assert only["url"] == "https://example.org/goats"
        found = await answered(
            client, "search", query="goats", vector_db_ids=["notes"], mode="keyword"
        )
        assert found["results"] == []


async def test_wrong_calls_say_what_to_do(tmp_path: Path) -> None:
    """Unknown scopes list the known ones; unknown arguments, ids and tools are named.

    If this fails: a model cannot correct its call.
    """
    async with in_memory(tmp_path, "legacy") as client:
        assert "Known: notes, web." in await refused(
            client, "search", query="x", vector_db_ids=["nobody"]
        )
        assert "Known: notes, web." in await refused(client, "get_vector_db", vector_db_id="x")
        assert "limit" in await refused(client, "search", query="x", limit=3)
        assert "DB/DOCUMENT" in await refused(client, "fetch", id="nonsense")
        gone = await refused(client, "fetch", id="notes/none.md")
        assert gone.startswith("There is no document 'notes/none.md'. ")
        beyond = await refused(client, "fetch", id="notes/fence.md", offset=7)
        assert "or it has <= 7 chunks" in beyond
        assert "must be valid Unicode" in await refused(client, "search", query="\ud83d")
        assert "mode" in await refused(client, "search", query="x", mode="psychic")
        bad = {"type": "like", "key": "kind", "value": "x"}
        assert "Valid types" in await refused(client, "search", query="x", filters=bad)
        with pytest.raises(MCPError, match="Did you mean search"):
            await client.call_tool("serch", {})
        with pytest.raises(MCPError, match=r"server\.tools\.writes"):
            await client.call_tool("insert", {})


async def test_an_empty_server_finds_nothing(tmp_path: Path) -> None:
    """Without a vector DB a search is an empty answer, no error."""
    config = run_config()
    stack = Stack(config, tmp_path)
    services = services_of(stack)
    async with Client(mcp_server(config.server.tools, lambda _: services), mode="legacy") as client:
        assert (await answered(client, "search", query="anything"))["results"] == []
        assert (await answered(client, "rag_query", question="anything"))["context"] == ""
        assert (await client.list_resources()).resources == []
    await stack.close()


async def test_writes_are_switched_on_and_need_a_writer(tmp_path: Path) -> None:
    """With `server.tools.writes`, insert and delete work; a reader is still refused."""
    async with in_memory(tmp_path / "a", "legacy", **WRITES) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} > READING
        new = {"document_id": "bull.md", "text": "The bull is called Ferdinand."}
        stored = await answered(client, "insert", vector_db_id="notes", documents=[new])
        assert stored["chunks"] == {"bull.md": 1}
        found = await answered(client, "search", query="Ferdinand", mode="keyword")
        assert [each["id"] for each in found["results"]] == ["notes/bull.md"]
        gone = await answered(client, "delete", vector_db_id="notes", document_id="bull.md")
        assert gone["chunk_count"] == 1
        assert "There is no document" in await refused(
            client, "delete", vector_db_id="notes", document_id="bull.md"
        )
    reader = Principal(role=Role.READER)
    async with in_memory(tmp_path / "b", "legacy", principal=reader, **WRITES) as client:
        arguments = {"vector_db_id": "notes", "document_id": "fence.md"}
        assert "role writer" in await refused(client, "delete", **arguments)


async def test_another_tenant_sees_nothing(tmp_path: Path) -> None:
    """What a principal may not see does not exist for its agent, as tool or as resource."""
    stranger = Principal(tenant="other", role=Role.ADMIN)
    async with in_memory(tmp_path, "legacy", principal=stranger) as client:
        assert (await answered(client, "list_vector_dbs"))["vector_dbs"] == []
        assert (await answered(client, "search", query="cattle"))["results"] == []
        assert "Known: none." in await refused(client, "fetch", id="notes/fence.md")
        with pytest.raises(MCPError, match="no vector DB"):
            await client.read_resource("corral://vector-dbs/notes/documents/fence.md")


@pytest.mark.parametrize("mode", ERAS)
async def test_resources_are_vector_dbs_and_their_documents(tmp_path: Path, mode: str) -> None:
    """A vector DB's resource lists its documents' addresses, which give their text."""
    async with in_memory(tmp_path, mode) as client:
        listed = {str(each.uri) for each in (await client.list_resources()).resources}
        assert listed == {"corral://vector-dbs/notes", "corral://vector-dbs/web"}
        [barn, fence] = json.loads(await read(client, "corral://vector-dbs/notes"))["documents"]
        assert await read(client, fence) == NOTES["fence.md"]
        assert "barn.md" in barn
        with pytest.raises(MCPError, match="uri must be"):
            await client.read_resource("corral://elsewhere")


async def test_long_resources_are_whole(tmp_path: Path) -> None:
    """A document comes whole, whatever `fetch` returns at once; a long list says how to read on.

    If this fails: an agent takes a part of a document, or of a vector DB, for all of it.
    """
    stack = Stack(run_config(**WRITES), tmp_path)
    small = {"chunk_size_in_tokens": 16, "overlap_in_tokens": 0}
    await stack.register(
        VectorDBRegistration.model_validate(
            {"vector_db_id": "long", "embedding_model": "hashing", "chunking": small}
        )
    )
    await stack.close()
    text = " ".join(f"w{number}" for number in range(6 * MAX_FETCHED_CHUNKS))
    async with in_memory(tmp_path, "legacy", **WRITES) as client:
        others = [{"document_id": f"{n}", "text": "x"} for n in range(MAX_LISTED_DOCUMENTS)]
        await answered(client, "insert", vector_db_id="long", documents=others)
        long = {"document_id": "zebra ä?.md", "text": text}
        stored = await answered(client, "insert", vector_db_id="long", documents=[long])
        assert stored["chunks"]["zebra ä?.md"] > MAX_FETCHED_CHUNKS
        found, uri = [], "corral://vector-dbs/long"
        while uri:
            told = json.loads(await read(client, uri))
            found += told["documents"]
            assert told["has_more"] == ("next" in told)
            uri = told.get("next", "")
        assert len(set(found)) == MAX_LISTED_DOCUMENTS + 1
        assert await read(client, found[-1]) == text
        with pytest.raises(MCPError, match="uri must be"):
            await client.read_resource(f"{found[0]}?after=x")


async def test_a_failure_keeps_its_text_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen exception is a plain message to the client, and a place in the log."""
    question = " ".join(("where", "is", "the", "gold"))

    async def broken(*_: Any) -> Any:
        raise RuntimeError(question)

    async with in_memory(tmp_path, "legacy") as client:
        monkeypatch.setattr(Stack, "vector_dbs", broken)
        assert await refused(client, "list_vector_dbs") == "The server failed on this request."
        with pytest.raises(MCPError, match="The server failed"):
            await client.list_resources()
    assert "RuntimeError" in caplog.text
    assert question not in caplog.text


@pytest.mark.parametrize("mode", ERAS)
async def test_over_http(tmp_path: Path, mode: str) -> None:
    """The same over a socket, at /mcp, without sessions."""
    config = run_config()
    stack = Stack(config, tmp_path)
    await fill(stack)
    await stack.close()
    with live_server(config, tmp_path) as url:
        async with Client(f"{url}/mcp", mode=mode) as client:
            await ask_everything(client)
            assert (await client.list_resources()).resources


async def test_http_requests_that_are_no_mcp(tmp_path: Path) -> None:
    """GET is 405, a foreign host 421, a body that is not JSON and a text/plain one 4xx."""
    app = create_app(run_config(), tmp_path)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            assert (await http.get("/mcp")).status_code == 405
            foreign = {"host": "evil.example"}
            assert (await http.post("/mcp", headers=foreign, json={})).status_code == 421
            accept = {"accept": "application/json, text/event-stream"}
            json_type = {**accept, "content-type": "application/json"}
            for headers, body in (
                (json_type, b"{"),
                (json_type, b"[]"),
                (json_type, b'{"jsonrpc": "2.0", "id": 1}'),
                ({**accept, "content-type": "text/plain"}, b"{}"),
            ):
                refusal = await http.post("/mcp", headers=headers, content=body)
                assert 400 <= refusal.status_code < 500, body


async def test_a_server_without_the_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app starts, and /mcp answers 424 with the command that installs the package."""
    monkeypatch.setattr("corral.server.mcp.find_spec", lambda _: None)
    app = create_app(run_config(), tmp_path)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            assert (await http.get("/v1/health")).status_code == 200
            answer = await http.post("/mcp", json={})
    assert answer.status_code == 424
    assert "pip install 'corral-rag[mcp]'" in answer.json()["detail"]


@pytest.mark.parametrize("mode", ERAS)
async def test_over_stdio(tmp_path: Path, mode: str) -> None:
    """`corral mcp` serves the data folder over standard input and output, and ends with it.

    The command is the one that `--print-config` prints.
    """
    config = run_config()
    (tmp_path / "run.yaml").write_text(yaml_of(config))
    stack = Stack(config, tmp_path)
    await fill(stack)
    await stack.close()
    printed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "corral.server.cli.cli",
        "--home", str(tmp_path), "mcp", "--print-config", "mcpservers",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told = json.loads((await printed.communicate())[0])["mcpServers"]["corral"]
    parameters = StdioServerParameters(**told, env=dict(os.environ))
    async with Client(stdio_client(parameters), mode=mode) as client:
        await ask_everything(client)
