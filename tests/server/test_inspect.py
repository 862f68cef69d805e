"""What the server says of itself: models and providers, their capabilities, no secrets."""

from __future__ import annotations

from pathlib import Path

from corral.providers.base.config import ProviderEntry
from corral.providers.stack.registry import provider_specs

from .harness import InProcess, message_of, run_config


def test_secrets_are_masked(tmp_path: Path) -> None:
    """A provider's key is shown nowhere, while its other settings are.

    If this fails: whoever can list providers can read the operator's keys.
    """
    config = run_config()
    remote = {
        "base_url": "http://127.0.0.1:1/v1",
        "api_key": "sk-secret",
        "models": [{"model": "remote-model", "dimension": 8}],
    }
    config.providers.embedding.append(
        ProviderEntry(provider_id="tei", provider_type="remote::openai", config=remote)
    )
    with InProcess(tmp_path, config) as app:
        response = app.send("GET", "/v1/providers")
        shown = app.ok("GET", "/v1/providers/tei")
    assert "sk-secret" not in response.text
    assert shown["config"]["base_url"] == remote["base_url"]
    assert shown["health"]["status"] == "Error"
    assert shown["health"]["message"]


def test_providers_show_what_they_can_do(app: InProcess) -> None:
    """The capabilities of a vector_io provider are those of its spec."""
    shown = app.ok("GET", "/v1/providers/sqlite")
    spec = next(s for s in provider_specs().values() if s.provider_type == "inline::sqlite")
    assert shown["capabilities"]["modes"] == list(spec.capabilities.modes)
    assert shown["capabilities"]["max_dimension"] == spec.capabilities.max_dimension
    assert app.ok("GET", "/v1/providers/hashing")["capabilities"] is None


def test_every_api_that_is_served_has_a_provider(app: InProcess) -> None:
    """Llama Stack's clients find exactly one provider of files and of tools, beside the configured.

    If this fails: their test suite stops at "Expected exactly one files provider".
    """
    listed = app.ok("GET", "/v1/providers")["data"]
    assert sorted(one["api"] for one in listed) == [
        "files", "inference", "inference", "tool_runtime", "vector_io",
    ]  # fmt: skip
    for one in listed:
        assert one["health"]["status"] == "OK"
        assert app.ok("GET", f"/v1/providers/{one['provider_id']}") == one
    shown = {one["api"]: one for one in listed}
    assert shown["files"]["config"]["max_mib"] == 512
    assert "allowed_url_hosts" in shown["tool_runtime"]["config"]


def test_unknown_names_are_refused_with_what_there_is(app: InProcess) -> None:
    """An unknown provider names the nearest one, an unknown model the known ones."""
    assert "Did you mean 'sqlite'?" in message_of(app.send("GET", "/v1/providers/sqlit"))
    assert "Known: hashing" in message_of(app.send("GET", "/v1/models/gpt"))


def test_the_default_model_is_marked(app: InProcess) -> None:
    """A caller without a preference finds the model to register with."""
    model, *_ = app.ok("GET", "/v1/models")["data"]
    assert model["identifier"] == "hashing"
    assert model["metadata"] == {"embedding_dimension": 256, "max_tokens": None, "default": True}
