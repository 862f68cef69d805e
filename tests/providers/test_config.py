"""run.yaml: what it may hold, how variables are filled in, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.errors import ConfigError
from corral.providers.config import RunConfig, data_home, load_config, substitute


def written(folder: Path, text: str) -> Path:
    """Write a run.yaml."""
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_is_a_complete_configuration(tmp_path: Path) -> None:
    """Without run.yaml: SQLite, the local model, this machine only."""
    config = load_config(home=tmp_path)
    assert config == RunConfig()
    assert [e.provider_type for e in config.providers.vector_io] == ["inline::sqlite"]
    assert [e.provider_type for e in config.providers.embedding] == ["inline::minilm"]
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8321)
    assert config.rag.allowed_url_hosts == []


def test_the_file_in_the_data_folder_is_found(tmp_path: Path) -> None:
    """run.yaml in the data folder is read; what it leaves out keeps its default."""
    written(tmp_path, "server: {port: 9000}\n")
    config = load_config(home=tmp_path)
    assert config.server.port == 9000
    assert config.providers == RunConfig().providers


def test_the_data_folder_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$CORRAL_HOME names the data folder; without it, .corral in the home folder."""
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "x"))
    assert data_home() == tmp_path / "x"
    monkeypatch.delenv("CORRAL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_home() == tmp_path / ".corral"


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("${env.A}", {"A": "x"}, "x"),
        ("${env.A:=y}", {}, "y"),
        ("${env.A:=y}", {"A": ""}, "y"),
        ("${env.A:=}", {}, ""),
        ("${env.A:=8321}", {}, 8321),
        ("${env.A:=true}", {}, True),
        ("port ${env.A:=8321}", {}, "port 8321"),
        ("http://${env.H:=localhost}:${env.P:=80}/v1", {"H": "tei"}, "http://tei:80/v1"),
        ("$env.A {env.A} ${A}", {}, "$env.A {env.A} ${A}"),
        (["${env.A}", {"k": "${env.A}"}], {"A": "x"}, ["x", {"k": "x"}]),
        (5, {}, 5),
    ],
)
def test_variables_are_filled_in(
    text: object, environment: dict[str, str], expected: object
) -> None:
    """Placeholders are replaced anywhere; alone, a placeholder may be a number or a boolean."""
    assert substitute(text, environment) == expected


def test_an_unset_variable_without_default_is_named(tmp_path: Path) -> None:
    """The message names the variable and the way to give it a default."""
    path = written(tmp_path, 'default_embedding_model: "${env.NOT_SET_ANYWHERE}"\n')
    with pytest.raises(ConfigError, match=r"NOT_SET_ANYWHERE.*:=default"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servr: {}", r"servr: Extra inputs"),
        ("server: {port: 99999}", r"server\.port: .*65535"),
        ("providers: {vector_io: [{provider_id: a}]}", r"vector_io\.0\.provider_type"),
        ("a: [", r"Cannot read"),
        (
            "providers: {vector_io: [{provider_id: a, provider_type: t},"
            " {provider_id: a, provider_type: t}]}",
            r"'a' appears twice",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """An unknown key, a value out of range, a missing key or bad YAML: the message says where."""
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path, text))


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A file that was asked for and is not there is an error, not a default."""
    with pytest.raises(ConfigError, match="Cannot read"):
        load_config(tmp_path / "other.yaml")
