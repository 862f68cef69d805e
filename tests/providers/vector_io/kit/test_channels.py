"""Connections of gRPC that take their time to open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from corral.providers.vector_io.kit.channels import channel_options

from ..far import far


@pytest.fixture
def server() -> Iterator[int]:
    """Lend the port of a server that knows no method."""
    with ThreadPoolExecutor(1) as workers:
        running = grpc.server(workers)
        port = running.add_insecure_port("127.0.0.1:0")
        running.start()
        yield port
        running.stop(None).wait()


async def test_a_connection_may_take_as_long_to_open_as_a_call(server: int) -> None:
    """A server is reached whose connection takes longer to open than the pause between attempts.

    If this fails: a server behind TLS and a long way counts as one that cannot be reached.
    """

    def asked(port: int) -> grpc.StatusCode:
        options = list(channel_options(timeout_seconds=30).items())
        with (
            grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel,
            pytest.raises(grpc.RpcError) as failure,
        ):
            channel.unary_unary("/corral/unknown")(b"", timeout=30)
        code: grpc.StatusCode = failure.value.code()
        return code

    async with far(server) as port:
        assert await asyncio.to_thread(asked, port) is grpc.StatusCode.UNIMPLEMENTED
