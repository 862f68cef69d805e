"""A server that is far away: its connections take their time to open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

OPENING_SECONDS = 0.6


@asynccontextmanager
async def far(port: int) -> AsyncIterator[int]:
    """Yield the port of a relay to a server; it lets the first bytes of a connection wait."""
    at_work: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(2**16):
                writer.write(data)
        finally:
            writer.close()

    async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(OPENING_SECONDS)
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.add(asyncio.create_task(relayed(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for task in at_work:
        task.cancel()
    await asyncio.gather(*at_work, return_exceptions=True)
    await asyncio.sleep(0)  # what was closed lets go of its socket in the loop's next round
