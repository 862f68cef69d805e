"""`corral mcp`: what it serves over stdio, and the configuration that it prints."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack.stack import Stack
from corral.server.cli.cli import main

from ..harness import run_config, wait_until


def corral(home: Path, *arguments: str) -> Result:
    """Run a command on a data folder."""
    return CliRunner().invoke(main, ["--home", str(home), *arguments])


def printed(home: Path, *arguments: str) -> dict[str, Any]:
    """Return the configuration that a command prints."""
    result = corral(home, *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def test_a_tenant_is_served_its_own(tmp_path: Path) -> None:
    """`corral --tenant acme mcp` serves acme's vector DBs and no other's, also as it is printed.

    If this fails: an agent of one tenant reads what belongs to another.
    """
    config = run_config()
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    stack = Stack(config, tmp_path)
    for tenant, name in (("", "everybodys"), ("acme", "theirs")):
        view = stack.for_principal(Principal(tenant=tenant, role=Role.ADMIN))
        await view.register(VectorDBRegistration(vector_db_id=name, embedding_model="hashing"))
    await stack.close()
    told = printed(tmp_path, "--tenant", "acme", "mcp", "--print-config", "vscode")
    command = told["servers"]["corral"]
    parameters = StdioServerParameters(
        command=command["command"], args=command["args"], env=dict(os.environ)
    )
    async with Client(stdio_client(parameters), mode="legacy") as client:
        listed = await client.call_tool("list_vector_dbs", {})
        assert listed.structured_content is not None
        served = [each["vector_db_id"] for each in listed.structured_content["vector_dbs"]]
    assert served == ["theirs"]


@pytest.mark.parametrize("kind", ["mcpservers", "vscode"])
def test_the_printed_command_is_of_the_tenant(tmp_path: Path, kind: str) -> None:
    """Its arguments name the tenant, and name none where none was given."""
    [servers] = printed(tmp_path, "--tenant", "acme", "mcp", "--print-config", kind).values()
    assert servers["corral"]["args"][-3:] == ["--tenant", "acme", "mcp"]
    [servers] = printed(tmp_path, "mcp", "--print-config", kind).values()
    assert "--tenant" not in servers["corral"]["args"]


def test_an_address_has_no_tenant(tmp_path: Path) -> None:
    """`http` with a tenant is refused, since the key determines the tenant; so is a bad tenant."""
    refused = corral(tmp_path, "--tenant", "acme", "mcp", "--print-config", "http")
    assert refused.exit_code == 2
    assert "the key determines the tenant" in refused.stderr
    for more in ((), ("--print-config", "vscode")):
        refused = corral(tmp_path, "--tenant", "*", "mcp", *more)
        assert (refused.exit_code, refused.stderr.startswith("Error: --tenant:")) == (2, True)


def test_a_kind_need_not_be_named(tmp_path: Path) -> None:
    """`--print-config` alone prints what most agents take."""
    named = printed(tmp_path, "mcp", "--print-config", "mcpservers")
    assert printed(tmp_path, "mcp", "--print-config") == named


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def url_of(told: dict[str, Any]) -> str:
    """Return the address in a printed configuration."""
    url: str = told["mcpServers"]["corral"]["url"]
    return url


def test_the_printed_address_is_that_of_the_running_server(tmp_path: Path) -> None:
    """While `serve --port` runs its port is printed, and as configured when it has ended.

    If this fails: look at `server/address.py`. An agent is given an address where nothing listens.
    """
    (tmp_path / "run.yaml").write_text(
        'server: {port: "${env.CORRAL_TEST_PORT:=8400}"}\n'
        'providers: {embedding: [{provider_id: hashing, provider_type: "inline::hashing"}]}\n'
    )
    http = ("mcp", "--print-config", "http")
    assert url_of(printed(tmp_path, *http)) == "http://127.0.0.1:8400/mcp"
    port = free_port()
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(tmp_path)]
    with subprocess.Popen(
        [*command, "serve", "--port", str(port)], stderr=subprocess.DEVNULL
    ) as up:
        try:
            wait_until(lambda: url_of(printed(tmp_path, *http)) == f"http://127.0.0.1:{port}/mcp")
        finally:
            up.terminate()
    assert url_of(printed(tmp_path, *http)) == "http://127.0.0.1:8400/mcp"


def test_an_address_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--url names the server; a port that only the system knows is refused with that hint."""
    named = CliRunner().invoke(
        main, ["--url", "http://fence:9000/", "mcp", "--print-config", "http"]
    )
    assert url_of(json.loads(named.stdout)) == "http://fence:9000/mcp"
    refused = CliRunner().invoke(main, ["--url", "http://fence:9000", "mcp"])
    assert (refused.exit_code, "leave out --url" in refused.stderr) == (2, True)
    (tmp_path / "run.yaml").write_text('server: {port: "${env.CORRAL_TEST_PORT}", host: "0.0.0.0"}')
    monkeypatch.setenv("CORRAL_TEST_PORT", "8500")
    told = printed(tmp_path, "mcp", "--print-config", "http")
    assert url_of(told) == "http://127.0.0.1:8500/mcp"
    monkeypatch.setenv("CORRAL_TEST_PORT", "0")
    refused = corral(tmp_path, "mcp", "--print-config", "http")
    assert refused.exit_code == 2
    assert "--url http://127.0.0.1:PORT mcp --print-config http" in refused.stderr
