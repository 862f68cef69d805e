"""`corral mcp`: what it serves over stdio, and the configuration that it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack import Stack
from corral.server.command_line.cli import main

from ..harness import run_config


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
    parameters = StdioServerParameters(command=command["command"], args=command["args"])
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
