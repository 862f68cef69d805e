"""Registrations: languages, weights, defaults, and which two registrations are the same one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from corral.api.errors import UnsupportedMode
from corral.api.rankers import WeightedRanker
from corral.api.scoring import Metric
from corral.api.vector_dbs import (
    DEFAULT_FIELD_WEIGHTS,
    LANGUAGES,
    ChunkingConfig,
    ContextDefaults,
    ContextOverrides,
    SearchDefaults,
    SearchMode,
    SearchOverrides,
    SearchSettings,
    VectorDB,
    VectorDBRegistration,
    language_name,
)

REGISTRATION = {"vector_db_id": "docs", "embedding_model": "m"}
STORED = {
    "identifier": "docs", "provider_id": "sqlite", "provider_resource_id": "docs",
    "embedding_model": "m", "embedding_dimension": 3,
}  # fmt: skip

# --- modes ----------------------------------------------------------------------------------------


def test_modes_have_their_wire_names() -> None:
    """The three modes and no other."""
    assert [mode.value for mode in SearchMode] == ["vector", "keyword", "hybrid"]
    assert SearchMode.parse("keyword") is SearchMode.KEYWORD
    assert SearchMode.parse(SearchMode.VECTOR) is SearchMode.VECTOR


@pytest.mark.parametrize("mode", ["", "Vector", "semantic", "vector ", 1, [], None])
def test_an_unknown_mode_is_refused_with_the_valid_ones(mode: Any) -> None:
    """Never silently another mode: the error lists all three."""
    with pytest.raises(UnsupportedMode, match="vector, keyword, hybrid"):
        SearchMode.parse(mode)


def test_a_registration_with_an_unknown_mode_is_refused() -> None:
    """The registration's own validation lists the modes too."""
    with pytest.raises(ValidationError, match="'vector', 'keyword' or 'hybrid'"):
        VectorDBRegistration.model_validate({**REGISTRATION, "search_mode": "semantic"})


# --- languages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("no", "norwegian"),
        ("nb", "norwegian"),
        ("nn", "norwegian"),
        ("norwegian", "norwegian"),
        ("Norwegian", "norwegian"),
        (" EN ", "english"),
        ("en-US", "english"),
        ("en_GB", "english"),
        ("zh-Hant", "chinese"),
        ("simple", "simple"),
    ],
)
def test_languages_by_code_or_english_name(given: str, name: str) -> None:
    """ISO codes, with or without a region, and English names, in any case."""
    assert language_name(given) == name
    assert SearchSettings(language=given).language == name


@pytest.mark.parametrize("code", sorted(LANGUAGES))
def test_every_code_and_every_name_is_accepted(code: str) -> None:
    """Each code gives its name, and each name itself."""
    assert language_name(code) == LANGUAGES[code] == language_name(LANGUAGES[code])


@pytest.mark.parametrize("language", ["", "klingon", "xx", "e", "-", "norsk"])
def test_an_unknown_language_is_refused_with_the_known_ones(language: str) -> None:
    """A language without a stemmer is named back with the list; it never becomes English."""
    with pytest.raises(ValidationError, match=r"unknown language .*norwegian"):
        SearchSettings(language=language)


# --- field weights --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        {"content": 1.0},
        {"content": 0.1, "title": 100},
        {"content": 1, "a.b'\"": 2},
        {"content": 1.0, **{f"f{n}": 1.0 for n in range(15)}},
    ],
)
def test_field_weights_are_kept(weights: dict[str, float]) -> None:
    """Any field names beside content, 16 at most, weights in (0, 100]."""
    assert SearchSettings(field_weights=weights).field_weights == weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"title": 2.0}, "'content' is missing"),
        ({}, "'content' is missing"),
        ({"content": 0}, "weight in"),
        ({"content": -1}, "weight in"),
        ({"content": 100.5}, "weight in"),
        ({"content": float("nan")}, "weight in"),
        ({"content": float("inf")}, "weight in"),
        ({"content": 1, "": 1}, "needs a name and a weight"),
        ({"content": 1, "a\0": 1}, "needs a name and a weight"),
        ({"content": 1, "x" * 256: 1}, "needs a name and a weight"),
        ({"content": 1.0, **{f"f{n}": 1.0 for n in range(16)}}, "<= 16 fields"),
        ({"content": "heavy"}, "content"),
        (["content"], "field_weights"),
    ],
)
def test_bad_field_weights_are_refused(weights: Any, message: str) -> None:
    """Without content, out of range, or too many: refused with what is wrong."""
    with pytest.raises(ValidationError, match=message):
        SearchSettings(field_weights=weights)


def test_default_weights_are_not_shared() -> None:
    """Changing one registration's weights leaves the default alone."""
    SearchSettings().field_weights["content"] = 9.0
    assert SearchSettings().field_weights == DEFAULT_FIELD_WEIGHTS == {"content": 1.0, "title": 2.0}


# --- the whole registration -----------------------------------------------------------------------


def test_defaults() -> None:
    """Hybrid by z-scores, alpha left to the query, English, cosine, 256 tokens, 32 twice."""
    settings = SearchSettings()
    assert settings.search_mode is SearchMode.HYBRID
    assert settings.ranker == WeightedRanker(alpha=None, normalization="z_score")
    assert (settings.language, settings.metric, settings.normalize) == ("english", "cosine", True)
    assert settings.chunking == ChunkingConfig(chunk_size_in_tokens=256, overlap_in_tokens=32)


@pytest.mark.parametrize("name", sorted(SearchSettings.model_fields))
def test_null_is_the_default(name: str) -> None:
    """A client that sends every absent option as null gets the defaults."""
    assert VectorDBRegistration.model_validate({**REGISTRATION, name: None}) == (
        VectorDBRegistration.model_validate(REGISTRATION)
    )


@pytest.mark.parametrize("model", [SearchSettings, VectorDBRegistration, VectorDB, ChunkingConfig])
def test_unknown_keys_are_refused_and_named(model: Any) -> None:
    """A misspelled setting is an error, not a silent default."""
    bases: dict[Any, dict[str, Any]] = {VectorDBRegistration: REGISTRATION, VectorDB: STORED}
    base = bases.get(model, {})
    with pytest.raises(ValidationError, match="serch_mode"):
        model.model_validate({**base, "serch_mode": "hybrid"})


@pytest.mark.parametrize(
    "bad",
    [
        {"vector_db_id": ""},
        {"vector_db_id": "\0"},
        {"vector_db_id": "a" * 256},
        {"vector_db_id": None},
        {"embedding_model": ""},
        {"embedding_dimension": 0},
        {"embedding_dimension": 16_001},
        {"embedding_dimension": "many"},
        {"metric": "manhattan"},
        {"normalize": "perhaps"},
        {"ranker": {"type": "magic"}},
        {"chunking": {"chunk_size_in_tokens": 0}},
        {"chunking": {"chunk_size_in_tokens": 10, "overlap_in_tokens": 6}},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    """Each is refused by name."""
    with pytest.raises(ValidationError, match=next(iter(bad))):
        VectorDBRegistration.model_validate({**REGISTRATION, **bad})


@pytest.mark.parametrize(
    "name", ["a", "a/b", "../a", "a?#%", "it's", '"', "🙂", "天气", "A" * 255, " ", "..", "-"]
)
def test_any_text_of_1_to_255_characters_names_a_vector_db(name: str) -> None:
    """The id is kept exactly as given."""
    registration = VectorDBRegistration.model_validate({**REGISTRATION, "vector_db_id": name})
    assert registration.vector_db_id == name


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"search_mode": "keyword"},
        {"ranker": {"type": "rrf", "impact_factor": 10}},
        {"ranker": {"type": "max", "candidates": 100}},
        {"language": "nb", "field_weights": {"content": 1.5, "tags": 3}},
        {"metric": "l2", "normalize": False},
        {"chunking": {"chunk_size_in_tokens": 100, "overlap_in_tokens": 50}},
        {"vector_db_name": "Documents"},
    ],
)
def test_a_stored_registration_comes_back_equal(change: dict[str, Any]) -> None:
    """Written as JSON and read again it is the same registration: a restart changes nothing."""
    vector_db = VectorDB.model_validate({**STORED, **change})
    assert VectorDB.model_validate_json(vector_db.model_dump_json()) == vector_db
    assert VectorDB.model_validate(vector_db.model_dump(mode="json")) == vector_db


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {}, True),
        ({"language": "no"}, {"language": "Norwegian"}, True),
        ({"ranker": None}, {"ranker": {"type": "weighted", "normalization": "z_score"}}, True),
        ({"ranker": None}, {"ranker": {"type": "weighted", "alpha": 0.4}}, False),
        ({"field_weights": {"title": 2, "content": 1}}, {}, True),
        ({"search_mode": "hybrid"}, {}, True),
        ({"search_mode": "vector"}, {}, False),
        ({"language": "german"}, {}, False),
        ({"metric": "dot"}, {}, False),
        ({"normalize": False}, {}, False),
        ({"embedding_dimension": 4}, {}, False),
        ({"embedding_model": "n"}, {}, False),
        ({"field_weights": {"content": 1}}, {}, False),
        ({"ranker": {"type": "rrf", "rank_constant": 61}}, {}, False),
    ],
)
def test_registering_again_is_a_conflict_only_when_something_differs(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    """Equality is by meaning: two spellings of one setting are equal, another setting is not."""
    left = VectorDB.model_validate({**STORED, **one})
    right = VectorDB.model_validate({**STORED, **other})
    assert (left == right) is same


def test_the_vector_db_has_the_wire_shape() -> None:
    """Llama Stack's fields under their names, with type vector_db."""
    dumped = VectorDB.model_validate({**STORED, "metric": Metric.L2}).model_dump(mode="json")
    llama_stack = {
        "identifier", "provider_id", "provider_resource_id", "type", "embedding_model",
        "embedding_dimension", "vector_db_name",
    }  # fmt: skip
    assert llama_stack <= set(dumped)
    assert (dumped["type"], dumped["metric"]) == ("vector_db", "l2")


@pytest.mark.parametrize(
    ("defaults", "overrides"),
    [(SearchDefaults, SearchOverrides), (ContextDefaults, ContextOverrides)],
)
def test_a_request_overrides_every_option(
    defaults: type[BaseModel], overrides: type[BaseModel]
) -> None:
    """Each registered option is one of requests, too, with the same values and null by default.

    If this fails: an option was added to one of the two classes.
    """
    assert list(defaults.model_fields) == list(overrides.model_fields)
    for name, field in overrides.model_fields.items():
        registered = TypeAdapter(defaults).json_schema()["properties"][name]
        values = {
            key: registered[key] for key in registered.keys() & {"enum", "minimum", "maximum"}
        }
        requested = TypeAdapter(overrides).json_schema()["properties"][name]["anyOf"][0]
        assert values == {key: requested[key] for key in values}
        assert field.default is None
        assert str(field.description).endswith("; null: as registered.")
