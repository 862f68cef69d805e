"""Provider specs and capabilities: what "cannot" by default means."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from pydantic import ValidationError

from corral.api.filters import COMPARISONS, COMPOUNDS
from corral.api.provider import (
    ALL_FILTERS,
    ENGINE_DEFAULTS,
    ENTRY_POINT_GROUP,
    Api,
    Capabilities,
    Health,
    ProviderConfig,
    ProviderSpec,
)
from corral.api.scoring import Metric


def test_the_default_capability_is_cannot() -> None:
    """A provider that says nothing can do nothing: every field is no, empty, 0 or False."""
    nothing = Capabilities()
    assert all(getattr(nothing, field.name) in ("no", (), 0, False) for field in fields(nothing))
    assert nothing.modes == ()


def test_a_typical_engine_is_one_value_that_an_author_can_change() -> None:
    """It claims all modes, metrics and filters, and none of the guarantees that differ.

    If this fails: every provider that builds on it claims, or denies, something else.
    """
    assert ENGINE_DEFAULTS.modes == ("vector", "keyword", "hybrid")
    assert ENGINE_DEFAULTS.metrics == tuple(metric.value for metric in Metric)
    assert ENGINE_DEFAULTS.filter_operators == ALL_FILTERS
    guarantees = ("exact", "concurrent_processes", "transactional", "fuzzy")
    assert not any(getattr(ENGINE_DEFAULTS, name) for name in guarantees)
    assert replace(ENGINE_DEFAULTS, exact=True).exact


@pytest.mark.parametrize(
    ("capabilities", "modes"),
    [
        (Capabilities(vector="native"), ("vector",)),
        (Capabilities(keyword="emulated"), ("keyword",)),
        (
            Capabilities(vector="native", keyword="native", hybrid="emulated"),
            ("vector", "keyword", "hybrid"),
        ),
    ],
)
def test_modes_are_those_that_are_native_or_emulated(
    capabilities: Capabilities, modes: tuple[str, ...]
) -> None:
    """Emulated beside the engine is supported, too."""
    assert capabilities.modes == modes


def test_capabilities_are_json_and_frozen() -> None:
    """The same value is served over HTTP and cannot be changed on the way."""
    capabilities = Capabilities(vector="native", metrics=("cosine",), max_dimension=8192)
    read = json.loads(json.dumps(capabilities.as_dict()))
    assert read["modes"] == ["vector"]
    assert read["metrics"] == ["cosine"]
    assert set(read) == {field.name for field in fields(capabilities)} | {"modes"}
    with pytest.raises(FrozenInstanceError):
        capabilities.exact = True  # type: ignore[misc]


def test_all_filters_is_every_operator() -> None:
    """A provider that translates them all says ALL_FILTERS."""
    assert set(ALL_FILTERS) == {*COMPARISONS, *COMPOUNDS}
    assert len(ALL_FILTERS) == 10


@pytest.mark.parametrize(
    ("provider_type", "name"),
    [("inline::sqlite", "sqlite"), ("remote::pgvector", "pgvector"), ("plain", "plain")],
)
def test_a_specs_name_is_its_type_without_the_prefix(provider_type: str, name: str) -> None:
    """The default provider id."""
    spec = ProviderSpec(
        api=Api.VECTOR_IO, provider_type=provider_type, description="", config="", factory=""
    )
    assert spec.name == name
    assert spec.capabilities == Capabilities()
    assert (spec.requires, spec.extra) == ((), "")


def test_the_names_that_others_write_down() -> None:
    """Outside packages and run.yaml files hold these strings; they do not change."""
    assert ENTRY_POINT_GROUP == "corral.providers"
    assert {api.value for api in Api} == {"vector_io", "embedding", "rerank", "inference", "reader"}


def test_a_config_refuses_unknown_keys() -> None:
    """A misspelled option in run.yaml is an error."""
    with pytest.raises(ValidationError, match="timeout_secnds"):
        ProviderConfig.model_validate({"timeout_secnds": 5})


def test_health_has_no_message_when_all_is_well() -> None:
    """OK needs no words."""
    assert Health("OK").message == ""
