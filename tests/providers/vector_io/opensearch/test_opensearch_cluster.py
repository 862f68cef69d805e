"""remote::opensearch on three nodes, of which one is killed under load."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import create

from ..real_server import folder_in_memory
from ..server_faults import PROVIDER_ID, Log, registered
from .real_server import MISSING, OpenSearchServer


@pytest.fixture
def nodes() -> Iterator[list[OpenSearchServer]]:
    """Three nodes of one cluster, running."""
    if not OpenSearchServer.found():
        pytest.skip(MISSING)
    with ExitStack() as stack:
        servers = [OpenSearchServer(stack.enter_context(folder_in_memory())) for _ in range(3)]
        for server in servers:
            server.peers = tuple(servers)
            stack.callback(server.kill)
            server.launch()
        for server in servers:
            server.wait()
        yield servers


def primary_of(nodes: list[OpenSearchServer]) -> OpenSearchServer:
    """Return the node with the primary shard of the only index."""
    url = f"{nodes[0].config['url']}/_cat/shards?h=prirep,node&format=json"
    shards = httpx.get(url, trust_env=False, timeout=30).raise_for_status().json()
    [name] = [shard["node"] for shard in shards if shard["prirep"] == "p"]
    return next(node for node in nodes if node.name == name)


async def test_a_killed_node_loses_no_acknowledged_write(
    nodes: list[OpenSearchServer], tmp_path: Path
) -> None:
    """Three clients add, replace and delete while the node with the primary shard is killed, and go
    on with the other two; what was acknowledged is there, whole, before and after its return.

    If this fails: a write was acknowledged by one copy only, or a client insists on the dead node.
    """
    urls = [node.config["url"] for node in nodes]
    vector_db = registered()
    providers = []
    for number in range(3):
        settings = {
            "url": urls[number],
            "other_urls": urls[:number] + urls[number + 1 :],
            "replicas": 1,
            "timeout_seconds": 10,
            "retries": 5,
        }
        config = OpenSearchConfig.model_validate(settings)
        providers.append(create(PROVIDER_ID, config, tmp_path / str(number)))
    indexes = [await provider.open_index(vector_db, create=True) for provider in providers]
    log = Log(indexes[0], persistent=True)
    async with asyncio.TaskGroup() as writers:
        for name, index in zip("abc", indexes, strict=True):
            writers.create_task(log.write(name, index))
        await log.reached(30)
        holder = await asyncio.to_thread(primary_of, nodes)
        others = [node for node in nodes if node is not holder]
        holder.kill()
        await log.reached(60)
        holder.launch()
        await log.reached(90)
        log.persistent = False
        for node in others:
            node.kill()
    for node in others:
        node.launch()
    for node in nodes:
        await asyncio.to_thread(node.wait)
    await log.check(transactional=False)
    for index in indexes[1:]:
        await index.close()
    await indexes[0].delete()
    for provider in providers:
        await provider.close()
    del indexes, providers, index, provider, log
    gc.collect()  # a connection that was left open raises its warning here
