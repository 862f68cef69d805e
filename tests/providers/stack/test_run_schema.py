"""The JSON schema of run.yaml accepts what the server accepts, and describes every setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from corral.providers.base.config import RunConfig, substitute
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.effective import effective_config
from corral.providers.stack.registry import provider_specs
from corral.providers.stack.run_schema import editor_schema, settings_schema

PGVECTOR = """
providers:
  vector_io:
    - {provider_id: a, provider_type: "remote::pgvector", config: {port: PORT}}
"""


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """Return a validator of run.yaml."""
    return Draft202012Validator(editor_schema())


def errors(schema: Draft202012Validator, text: str) -> list[str]:
    """Return the paths at which a file does not match."""
    faults = schema.iter_errors(yaml.safe_load(text))
    return [".".join(map(str, each.instance_path)) for each in faults]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("server: {port: 70000}", "server.port"),
        ("server: {prot: 1}", "server"),
        ("sync: [{name: a, vector_db_id: b, source: {type: git}}]", "sync.0.source"),
        ("sync: [{name: a, vector_db_id: b, source: {type: cvs}}]", "sync.0.source.type"),
        (PGVECTOR.replace("PORT", "0"), "providers.vector_io.0.config.port"),
        (PGVECTOR.replace("PORT", "1, dns: x"), "providers.vector_io.0.config"),
        (PGVECTOR.replace("pgvector", "mysql"), "providers.vector_io.0.provider_type"),
    ],
)
def test_the_schema_marks_a_wrong_setting(
    schema: Draft202012Validator, text: str, path: str
) -> None:
    """An unknown key and a value out of range are marked in the sections of providers, too."""
    assert errors(schema, text) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "server: {port: '${env.PORT:=8321}', metrics: '${env.METRICS}', auth: none}",
        PGVECTOR.replace("PORT", "'${env.PORT}', ssl_mode: '${env.SSL}'"),
        "sync: [{name: a, vector_db_id: b, source: {type: folder, path: /srv}}]",
    ],
)
def test_the_schema_accepts_a_variable_in_any_place(
    schema: Draft202012Validator, text: str
) -> None:
    """A number, a switch and a choice may come from the environment; nothing is marked then."""
    assert errors(schema, text) == []
    values = {"PORT": "8321", "METRICS": "false", "SSL": "require"}
    RunConfig.model_validate(substitute(yaml.safe_load(text), values))


def test_the_schema_accepts_the_settings_in_force(
    schema: Draft202012Validator, tmp_path: Path
) -> None:
    """`corral config show > run.yaml` writes a file without a mark: the defaults are valid."""
    shown = effective_config(ConfiguredProviders(RunConfig(), tmp_path))
    assert errors(schema, yaml.safe_dump(shown)) == []


def test_every_setting_has_a_meaning() -> None:
    """Each setting is described, by its field or by a line of its class's docstring.

    If this fails: docs/configuration.md would have an empty cell; describe the setting.
    """
    schema = settings_schema()
    nodes: dict[str, Any] = {"": schema, **schema["$defs"]}
    bare = [
        f"{name}.{setting}"
        for name, node in nodes.items()
        for setting, field in node.get("properties", {}).items()
        if "$ref" not in field and not field.get("description")
    ]
    assert bare == []
    types = {kind for _, kind in provider_specs()}
    assert types <= set(str(schema).split("'"))
