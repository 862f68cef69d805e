"""The provider registry: specs by entry point, late imports, and messages that help."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import ConfigError, MissingDependency, UnknownProvider
from corral.api.provider import Api, ProviderSpec
from corral.providers.base.config import ProviderEntry
from corral.providers.stack import registry
from corral.providers.stack.registry import build_provider, check_config, find_spec, provider_specs

ENGINES = ["apsw", "sqlite_vec", "onnx", "onnxruntime", "tokenizers", "numpy.linalg", "fastapi"]


def entry(provider_type: str, **config: object) -> ProviderEntry:
    """Return a configured provider."""
    return ProviderEntry(provider_id="mine", provider_type=provider_type, config=config)


def test_built_in_providers_come_through_entry_points() -> None:
    """The built-in providers are found like anyone's, under names of inline:: and remote::."""
    types = {(api.value, name) for api, name in provider_specs()}
    assert types >= {
        ("vector_io", "inline::sqlite"),
        ("embedding", "inline::minilm"),
        ("embedding", "inline::hashing"),
        ("embedding", "remote::openai"),
    }


def test_listing_specs_imports_no_engine() -> None:
    """Listing what is installed is cheap: no engine's module is loaded.

    If this fails: a provider's __init__.py imports more than the contract.
    """
    code = (
        "import sys; from corral.providers.stack.registry import provider_specs; provider_specs();"
        f"print([m for m in {[e for e in ENGINES if '.' not in e]} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_spec_leads_to_its_config_and_factory() -> None:
    """Each spec's config forbids unknown keys, its extra exists, and its README does too."""
    extras = metadata.metadata("corral-rag").get_all("Provides-Extra") or []
    for spec in provider_specs().values():
        with pytest.raises(ConfigError):
            check_config(spec.api, entry(spec.provider_type, surely_unknown=1))
        assert not spec.extra or spec.extra in extras, spec.provider_type
        folder = Path(sys.modules[spec.config.split(":")[0]].__file__ or "").parent
        assert (folder / "README.md").is_file(), spec.provider_type


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    """A typo in a provider type gets the name that was meant."""
    with pytest.raises(UnknownProvider, match=r"Did you mean 'inline::sqlite'\?"):
        find_spec(Api.VECTOR_IO, "inline::sqlit")


def test_a_bad_setting_is_named_with_its_place() -> None:
    """An unknown key of a provider's config is an error that names provider and key."""
    with pytest.raises(ConfigError, match=r"mine\.config\.foldr: not a known key"):
        check_config(Api.VECTOR_IO, entry("inline::sqlite", foldr="x"))


def test_a_missing_distribution_is_answered_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not installed is said before anything is imported, with the command to install it."""
    spec = ProviderSpec(
        api=Api.VECTOR_IO,
        provider_type="inline::sqlite",
        description="",
        config="corral.providers.vector_io.sqlite.config:SqliteConfig",
        factory="no.such.module:create",
        requires=("a-distribution-nobody-has",),
        extra="nobody",
    )
    monkeypatch.setattr(registry, "find_spec", lambda *_: spec)
    with pytest.raises(MissingDependency, match=r"pip install 'corral-rag\[nobody\]'"):
        build_provider(Api.VECTOR_IO, entry("inline::sqlite"), tmp_path)


@pytest.mark.parametrize("part", ["config", "factory"])
def test_a_plugin_that_breaks_later_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A spec whose config or factory cannot be imported: the error names type and reference."""
    parts = {"config": "corral.providers.vector_io.sqlite.config:SqliteConfig", "factory": "x:y"}
    parts[part] = "no.such.module:thing"
    spec = ProviderSpec(
        api=Api.VECTOR_IO,
        provider_type="inline::sqlite",
        description="",
        config=parts["config"],
        factory=parts["factory"],
    )
    monkeypatch.setattr(registry, "find_spec", lambda *_: spec)
    with pytest.raises(ConfigError, match=r"inline::sqlite is broken: no\.such\.module:thing"):
        build_provider(Api.VECTOR_IO, entry("inline::sqlite"), tmp_path)


@pytest.mark.parametrize(
    ("part", "reference", "said"),
    [
        ("config", "builtins:dict", "builtins:dict is not a subclass of ProviderConfig"),
        ("factory", "builtins:divmod", "builtins:divmod failed with TypeError at registry.py:"),
    ],
)
def test_a_plugin_that_fails_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, reference: str, said: str
) -> None:
    """A config that is none and a factory that raises are errors of the plugin, and say where.

    If this fails with the plugin's own error: the list of providers fails with it, for all of them.
    """
    found = registry.find_spec(Api.VECTOR_IO, "inline::sqlite")
    change: dict[str, Any] = {part: reference}
    spec = replace(found, **change)
    monkeypatch.setattr(registry, "find_spec", lambda *_: spec)
    with pytest.raises(ConfigError, match=f"inline::sqlite is broken: {said}"):
        build_provider(Api.VECTOR_IO, entry("inline::sqlite"), tmp_path)


@pytest.mark.parametrize(("body", "outcome"), [("def make(*_): ...", None), ("1 / 0", ConfigError)])
def test_engines_are_imported_without_a_look_for_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, outcome: type[Exception] | None
) -> None:
    """The collector rests while the module of a factory is imported, and goes on after it.

    If this fails: an engine takes longer to import, or the server collects no garbage any more.
    """
    name = f"engine_{outcome is None}"
    (tmp_path / f"{name}.py").write_text(f"import gc\nSEEN = gc.isenabled()\n{body}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = replace(registry.find_spec(Api.VECTOR_IO, "inline::sqlite"), factory=f"{name}:make")
    monkeypatch.setattr(registry, "find_spec", lambda *_: spec)
    assert gc.isenabled()
    if outcome is None:
        build_provider(Api.VECTOR_IO, entry("inline::sqlite"), tmp_path)
        assert sys.modules[name].SEEN is False
    else:
        with pytest.raises(outcome):
            build_provider(Api.VECTOR_IO, entry("inline::sqlite"), tmp_path)
    assert gc.isenabled()


def test_a_module_that_exits_is_a_broken_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin whose module calls `sys.exit` ends no command of Corral's: it is broken."""

    class Entry:
        name = value = "x:SPEC"

        def load(self) -> None:
            raise SystemExit(3)

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()])
    for each in (provider_specs, registry.broken_plugins):
        each.cache_clear()
    try:
        assert provider_specs() == {}
        (broken,) = registry.broken_plugins()
        assert broken.reason == "x:SPEC cannot be imported: SystemExit: 3"
    finally:
        for each in (provider_specs, registry.broken_plugins):
            each.cache_clear()


def test_two_packages_may_not_claim_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two different specs of one type are an error, not a matter of order."""

    class Entry:
        name = value = "x"

        def __init__(self, description: str) -> None:
            self._spec = ProviderSpec(Api.VECTOR_IO, "inline::x", description, "", "")

        def load(self) -> ProviderSpec:
            return self._spec

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry("a"), Entry("b")])
    provider_specs.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"Two packages .*: the entry points x and x"):
            provider_specs()
    finally:
        provider_specs.cache_clear()
