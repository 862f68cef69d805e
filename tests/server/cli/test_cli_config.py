"""`corral providers`, `models` and `config`, and what every command says of a wrong run.yaml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

Corral = Callable[..., Result]


def test_providers_are_shown_with_capabilities_and_health(corral: Corral) -> None:
    """Types with what they can do; configured ones with their health."""
    shown = corral("providers")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["sqlite", "vector_io", "inline::sqlite", "OK"] in rows
    assert ["hashing", "embedding", "inline::hashing", "OK"] in rows
    can = next(row for row in rows if row[:2] == ["inline::sqlite", "vector_io"])
    assert can[2:7] == ["native", "native", "emulated", "yes", "yes"]


def test_models_are_listed(corral: Corral) -> None:
    """Each model with its provider and dimension, and which one a new vector DB gets."""
    rows = [line.split() for line in corral("models").stdout.splitlines()]
    assert rows[2:] == [["hashing", "hashing", "64", "yes"]]


def test_config_show_is_yaml_with_defaults_and_without_secrets(
    invoke: Corral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effective configuration: where it is from, providers' defaults, secrets masked."""
    file = tmp_path / "other.yaml"
    monkeypatch.setenv("KEY", "sk-very-secret")
    models = "[{model: m, dimension: 3}]"
    entry = f"{{base_url: 'http://127.0.0.1:1', api_key: '${{env.KEY}}', models: {models}}}"
    file.write_text(
        "server: {port: 9000}\nproviders:\n  embedding:\n"
        f"    - {{provider_id: tei, provider_type: 'remote::openai', config: {entry}}}\n",
        encoding="utf-8",
    )
    shown = invoke("--home", tmp_path, "--config", file, "config", "show")
    assert shown.exit_code == 0, shown.output
    assert "sk-very-secret" not in shown.output
    assert f"# configuration: {file}\n# data folder: {tmp_path}\n" in shown.stdout
    effective: dict[str, Any] = yaml.safe_load(shown.stdout)
    assert effective["server"]["port"] == 9000
    assert effective["server"]["limits"]["max_k"] == 1000
    assert effective["providers"]["embedding"][0]["config"]["api_key"] == "**********"


def test_config_show_tells_the_default_model_in_force(invoke: Corral, tmp_path: Path) -> None:
    """Where run.yaml names no default, or one that nobody serves, `config show` says what happens.

    If this fails: an operator reads one model and gets another.
    """
    entry = "{provider_id: hashing, provider_type: 'inline::hashing', config: {dimension: 64}}"
    text = f"providers: {{embedding: [{entry}]}}\n"
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    shown = invoke("--home", tmp_path, "config", "show", "--json")
    assert json.loads(shown.stdout)["default_embedding_model"] == "hashing"
    (tmp_path / "run.yaml").write_text(f"{text}default_embedding_model: nope", encoding="utf-8")
    refused = invoke("--home", tmp_path, "config", "show")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "default_embedding_model is 'nope', which no embedding provider" in refused.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n", "the top level: must be a mapping."),
        ("server: {port: ten}", "server.port: must be an integer."),
        ("server: {port: 99999}", "server.port: must be <= 65535."),
        ("server: {log_format: xml}", "server.log_format: must be 'text' or 'json'."),
        ("providers: {vector_io: x}", "providers.vector_io: must be a list."),
    ],
)
def test_a_wrong_setting_is_told_in_plain_words(
    invoke: Corral, tmp_path: Path, text: str, told: str
) -> None:
    """What is wrong in run.yaml is said of the file, not of the classes that read it."""
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    refused = invoke("--home", tmp_path, "config", "show")
    assert refused.exit_code == 2
    assert refused.stderr.endswith(f"run.yaml: {told}\n")


def test_a_broken_configuration_is_the_inputs_fault(invoke: Corral, tmp_path: Path) -> None:
    """A wrong key in run.yaml is named, with exit code 2, by every command that reads it."""
    (tmp_path / "run.yaml").write_text("servr: {}", encoding="utf-8")
    for words in (["config", "show"], ["dbs", "list"], ["serve"]):
        refused = invoke("--home", tmp_path, *words)
        assert refused.exit_code == 2
        assert "servr" in refused.stderr
        assert "Traceback" not in refused.output


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("providers: {vector_io: []}", "providers.vector_io"),
        ("server: {limits: {max_body_mib: .inf}}", "server.limits.max_body_mib"),
        ("server: {limits: {max_k: 3}}", "server.limits.max_k"),
        ("rag: {allowed_url_hosts: ['https://docs.example.org/']}", "rag.allowed_url_hosts"),
        ("default_embedding_model: no-such-model", "default_embedding_model"),
        ("server: {allowed_hosts: ['http://x']}", "server.allowed_hosts"),
    ],
)
def test_a_setting_that_cannot_work_is_named(
    invoke: Corral, tmp_path: Path, text: str, setting: str
) -> None:
    """One line that names the setting, exit code 2, from the server and from every command.

    If this fails: the setting is a traceback, a 500 of every request, or silently ignored.
    """
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    for words in (["dbs", "list"], ["serve", "--port", "0"]):
        refused = invoke("--home", tmp_path, *words)
        assert refused.exit_code == 2, refused.output
        assert setting in refused.stderr
        assert "Traceback" not in refused.output
        assert "Value error" not in refused.output


def test_a_broken_plugin_is_listed_and_stops_nothing(tmp_path: Path) -> None:
    """A plugin whose import fails is named with its reason; every other provider works.

    If this fails: one broken package on a machine stops every command of Corral.
    """
    (tmp_path / "broken_plugin.py").write_text("import no_such_module_anywhere", encoding="utf-8")
    about = tmp_path / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    entry = "[corral.providers]\nvector_io-broken = broken_plugin:SPEC\n"
    (about / "entry_points.txt").write_text(entry)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [*command, *words],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )

    shown = run("providers")
    assert shown.returncode == 0, shown.stderr
    assert "inline::sqlite" in shown.stdout
    assert "vector_io-broken" in shown.stderr
    assert "no_such_module_anywhere" in shown.stderr
    entry = "{provider_id: s, provider_type: 'inline::broken'}"
    (tmp_path / "run.yaml").write_text(f"providers: {{vector_io: [{entry}]}}", encoding="utf-8")
    refused = run("dbs", "list")
    assert refused.returncode == 2
    assert "vector_io-broken" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_unknown_provider_type_is_the_inputs_fault(invoke: Corral, tmp_path: Path) -> None:
    """A provider type that does not exist is named with the nearest one."""
    entry = "{provider_id: s, provider_type: 'inline::sqlight'}"
    (tmp_path / "run.yaml").write_text(f"providers: {{vector_io: [{entry}]}}", encoding="utf-8")
    refused = invoke("--home", tmp_path, "dbs", "list")
    assert refused.exit_code == 2
    assert "Did you mean 'inline::sqlite'?" in refused.stderr
