"""The connections of the server.

This module is separate and imports little: each of several processes unpickles the class before it
answers the parent's pings.
"""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that sends immediately.

    uvicorn binds the shared socket of several processes without naming TCP, so asyncio leaves
    Nagle's algorithm on: the body of each response waits until the client acknowledges the
    headers, 40 ms with delayed acknowledgments.
    """

    def connection_made(  # type: ignore[override]  # uvicorn narrows it: TCP has a Transport
        self, transport: asyncio.Transport
    ) -> None:
        """Turn off Nagle's algorithm, so that each write is sent at once."""
        accepted = transport.get_extra_info("socket")
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
