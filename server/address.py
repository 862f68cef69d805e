"""The address of the server that runs on a data folder, for commands that print it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from corral.api.errors import ConfigError
from corral.providers.config import ServerSettings

FILE = "serving.json"
"""In the data folder, of the last server on it; a connection tells if it still runs."""
CONNECT_SECONDS = 1.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing listens there
"""What an address that listens everywhere is called on this machine."""


def record(server: ServerSettings, home: Path) -> None:
    """Record in the data folder where a server is going to listen.

    A port that the system chooses is not known yet, and not recorded.
    """
    if server.port:
        text = json.dumps({"host": server.host, "port": server.port})
        (home / FILE).write_text(text, encoding="utf-8")


def address_of(server: ServerSettings, home: Path) -> str:
    """Return the URL of the server that runs on a data folder, else of the one configured.

    Raises:
        ConfigError: None runs, and the configuration leaves the port to the system.
    """
    if server.tools.public_url:
        return server.tools.public_url.rstrip("/")
    host, port = _running(home) or (server.host, server.port)
    if not port:
        raise ConfigError(
            "The server's port is not known: server.port is 0.",
            hint="Pass the address: corral --url http://127.0.0.1:PORT mcp --print-config http",
            field="server.port",
        )
    name = _ANY.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _running(home: Path) -> tuple[str, int] | None:
    """Return where the server on a data folder listens; None if none answers there."""
    try:
        found = json.loads((home / FILE).read_text("utf-8"))
        host, port = str(found["host"]), int(found["port"])
        with socket.create_connection((_ANY.get(host, host), port), CONNECT_SECONDS):
            return host, port
    except (OSError, ValueError, KeyError, TypeError):
        return None
