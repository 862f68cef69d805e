"""`corral doctor`: what it finds on a machine, in a configuration and behind it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from sqlalchemy import text

from corral.providers.state.opening import Place
from tests.providers.embedding.onnx.model_folders import table_folder

Corral = Callable[..., Result]
Findings = dict[str, dict[str, str]]


def examined(result: Result) -> Findings:
    """Return the findings by check."""
    return {each["check"]: each for each in json.loads(result.stdout)}


def configured(home: Path, **sections: object) -> None:
    """Write a run.yaml with a free port, unless a section says otherwise."""
    server = sections.pop("server", {"port": 0})
    embedding = [{"provider_id": "hashing", "provider_type": "inline::hashing"}]
    providers = {"embedding": embedding, **sections.pop("providers", {})}  # type: ignore[dict-item]  # a mapping
    settings = {"server": server, "providers": providers, **sections}
    (home / "run.yaml").write_text(yaml.safe_dump(settings), "utf-8")


def test_a_healthy_machine_has_no_problem(corral: Corral, home: Path) -> None:
    """Each check prints a line, the exit code is 0, and the check of a new folder makes no state.

    If this fails: the message of the check that is not OK says what it misses.
    """
    configured(home)
    shown = corral("doctor")
    assert shown.exit_code == 0, shown.output
    assert "problem" not in shown.stdout
    findings = examined(corral("doctor", "--json"))
    expected = ["Python", "data folder", "SQLite", "configuration", "vector_io sqlite"]
    expected += ["embedding hashing", "inference extractive", "model hashing"]
    assert list(findings) == [*expected, "state", "files", "port"]
    assert not (home / "state.db").exists()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("server: {prot: 1}", "server.prot"),
        ("state: mysql://127.0.0.1/x", "sqlite"),
        ("providers: {vector_io: [{provider_id: a, provider_type: 'inline::sqlit'}]}", "sqlite"),
    ],
)
def test_a_wrong_configuration_is_one_problem(
    corral: Corral, home: Path, written: str, words: str
) -> None:
    """The machine is checked all the same; what follows from the configuration is not."""
    (home / "run.yaml").write_text(written, "utf-8")
    result = corral("doctor", "--json")
    findings = examined(result)
    assert result.exit_code == 1
    assert list(findings) == ["Python", "data folder", "SQLite", "configuration"]
    assert findings["configuration"]["status"] == "problem"
    assert words in findings["configuration"]["message"] + findings["configuration"]["hint"]


def test_unreachable_engines_are_problems_with_a_remedy(corral: Corral, home: Path) -> None:
    """Engine, state and object storage are each named, with what to do; no password is shown."""
    secret = "the-secret"
    entry = {"provider_id": "far", "provider_type": "remote::qdrant"}
    configured(
        home,
        state=f"postgresql://corral:{secret}@127.0.0.1:1/corral",
        files={"url": "s3://bucket", "endpoint": "http://127.0.0.1:1", "timeout_seconds": 1},
        providers={"vector_io": [{**entry, "config": {"url": "http://127.0.0.1:1"}}]},
    )
    result = corral("doctor", "--json")
    findings = examined(result)
    assert result.exit_code == 1
    problems = {name for name, each in findings.items() if each["status"] == "problem"}
    assert problems == {"vector_io far", "state", "files"}
    for name in problems - {"files"}:
        assert "run.yaml" in findings[name]["message"] + findings[name]["hint"]
    assert secret not in result.output


def test_a_model_with_another_digest_is_a_problem(
    corral: Corral, home: Path, tmp_path: Path
) -> None:
    """The model's file is read and compared, although the provider reports OK without it."""
    model = {"model": "table", "path": str(table_folder(tmp_path / "model"))}
    for sha256, status in (({}, "OK"), ({"model.onnx": "0" * 64}, "problem")):
        entry = {"provider_id": "onnx", "provider_type": "inline::onnx"}
        config = {"models": [{**model, "sha256": sha256}]}
        configured(home, providers={"embedding": [{**entry, "config": config}]})
        findings = examined(corral("doctor", "--json"))
        assert findings["model table"]["status"] == status
        assert findings["embedding onnx"]["status"] == "OK"


def test_a_port_that_is_taken_is_a_problem(corral: Corral, home: Path) -> None:
    """Another program on the port is a problem; the server of this data folder is not."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        configured(home, server={"port": port})
        assert examined(corral("doctor", "--json"))["port"]["status"] == "problem"
        (home / "serving.json").write_text(json.dumps({"host": "127.0.0.1", "port": port}))
        assert examined(corral("doctor", "--json"))["port"]["status"] == "OK"


def test_a_state_of_a_newer_version_is_a_problem(corral: Corral, home: Path) -> None:
    """A data folder that a newer Corral wrote is named; an existing one of this version is OK."""
    configured(home)
    assert corral("dbs", "list").exit_code == 0
    assert "schema version" in examined(corral("doctor", "--json"))["state"]["message"]
    engine = Place(home, "sqlite").connected()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    state = examined(corral("doctor", "--json"))["state"]
    assert state["status"] == "problem"
    assert "Upgrade Corral" in state["hint"]


def test_a_folder_that_cannot_be_made_is_a_problem(invoke: Corral, tmp_path: Path) -> None:
    """A data folder within a file is a problem, with the option to choose another."""
    (tmp_path / "file").touch()
    result = invoke("--home", tmp_path / "file" / "home", "doctor", "--json")
    finding = examined(result)["data folder"]
    assert finding["status"] == "problem"
    assert "--home" in finding["hint"]
