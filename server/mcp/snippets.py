"""Configuration snippets that tell an agent how to reach Corral."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from corral.providers.base.config import data_home, load_config
from corral.server.address import address_of


def snippet(
    kind: str, config: Path | None, home: Path | None, tenant: str = "", url: str | None = None
) -> str:
    """Return a part of an agent's configuration, as JSON.

    Args:
        kind: mcpservers, vscode, or http, which has the server's address instead of a command.
        config: The configuration file; None for the one in the data folder.
        home: The data folder, None for the default.
        tenant: The tenant that the command serves; not for http, where the key determines it.
        url: The server's address, for http; None for the server on the data folder.
    """
    folder = home or data_home()
    made: dict[str, Any]
    if kind == "http":
        address = url or address_of(load_config(config, folder).server, folder)
        made = {"mcpServers": {"corral": {"url": f"{address.rstrip('/')}/mcp"}}}
    elif kind == "vscode":
        made = {"servers": {"corral": {"type": "stdio", **_command(config, folder, tenant)}}}
    else:
        made = {"mcpServers": {"corral": _command(config, folder, tenant)}}
    return json.dumps(made, indent=2)


def _command(config: Path | None, home: Path, tenant: str) -> dict[str, Any]:
    """Return the command with absolute paths, because agents have another PATH and folder."""
    beside = Path(sys.executable).with_name("corral")
    program = str(beside) if beside.exists() else shutil.which("corral")
    start = [program] if program else [sys.executable, "-m", "corral.server.cli.cli"]
    options = ["--home", str(home)]
    if config is not None:
        options += ["--config", str(config.absolute())]
    if tenant:
        options += ["--tenant", tenant]
    return {"command": start[0], "args": [*start[1:], *options, "mcp"]}
