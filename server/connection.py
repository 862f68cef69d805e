"""The connections of the server.

A module of its own with few imports: a process of several unpickles the class before it answers
the parent's pings, and the parent ends a process that does not answer in five seconds.
"""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that sends at once, and tells its client when the server stops.

    uvicorn binds the socket that several processes share without naming TCP, so asyncio leaves
    Nagle's algorithm on: the body of each answer waits until the client acknowledges the headers,
    40 ms if it delays acknowledgements.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Send what is written without waiting for acknowledgements."""
        accepted = transport.get_extra_info("socket")
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def shutdown(self) -> None:
        """Close an idle connection; say in the headers of a running answer that it is the last."""
        super().shutdown()
        # uvicorn's type leaves out that there is none before the first request.
        if self.cycle is not None and not self.cycle.response_started:  # type: ignore[redundant-expr]
            last = (b"connection", b"close")
            self.cycle.default_headers = [*self.cycle.default_headers, last]
