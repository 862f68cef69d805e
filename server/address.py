"""The address of the server that runs on a data folder, for commands that print it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from corral.api.errors import ConfigError
from corral.providers.base.config import ServerSettings

FILE = "serving.json"
"""File with the address of the last server on the data folder, which may have stopped."""
CONNECT_SECONDS = 1.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compares addresses, binds none
"""Local addresses to connect to, by the address that listens on all interfaces."""


def record(server: ServerSettings, home: Path) -> None:
    """Record in the data folder the address at which a server will listen.

    Records nothing if the system chooses the port.
    """
    if server.port:
        text = json.dumps({"host": server.host, "port": server.port})
        (home / FILE).write_text(text, encoding="utf-8")


def address_of(server: ServerSettings, home: Path) -> str:
    """Return the URL of the server that runs on a data folder; if none runs, the configured URL.

    Raises:
        ConfigError: No server runs, and the configuration leaves the port to the system.
    """
    if server.tools.public_url:
        return server.tools.public_url.rstrip("/")
    host, port = running(home) or (server.host, server.port)
    if not port:
        raise ConfigError(
            "The server's port is not known: server.port is 0.",
            hint="Pass the address: corral --url http://127.0.0.1:PORT mcp --print-config http",
            field="server.port",
        )
    return url_of(_ANY.get(host, host), port)


def url_of(host: str, port: int) -> str:
    """Return the URL of a host name or address and a port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def running(home: Path) -> tuple[str, int] | None:
    """Return host and port of the server on a data folder; None if no server answers there."""
    try:
        recorded = json.loads((home / FILE).read_text("utf-8"))
        host, port = str(recorded["host"]), int(recorded["port"])
        with socket.create_connection((_ANY.get(host, host), port), CONNECT_SECONDS):
            return host, port
    except (OSError, ValueError, KeyError, TypeError):
        return None
