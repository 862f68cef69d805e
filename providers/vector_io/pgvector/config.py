"""Settings of remote::pgvector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, SecretStr, model_validator

from corral.api.provider import ProviderConfig

_ADDRESS = {"host", "port", "database", "user", "password", "ssl_mode", "ssl_root_certificate"}
_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=63)]


class Attachment(ProviderConfig):
    """An existing table and the roles of its columns; Corral only reads it."""

    table: _Name = Field(description="Name of the table.")
    schema_name: _Name = Field(default="public", description="Schema of the table.")
    id_column: _Name = Field(default="id", description="Unique; becomes the chunk_id.")
    content_column: _Name = Field(default="content", description="The text.")
    embedding_column: _Name = Field(default="embedding", description="Of type vector or halfvec.")
    metadata_column: _Name | None = Field(
        default=None, description="Of type jsonb or json; for filters."
    )
    words_column: _Name | None = Field(
        default=None, description="A tsvector; without one, keyword search reads all texts."
    )

    @property
    def roles(self) -> dict[str, str]:
        """The column of each role that has one."""
        named = {
            "id": self.id_column,
            "content": self.content_column,
            "embedding": self.embedding_column,
            "metadata": self.metadata_column,
            "words": self.words_column,
        }
        return {role: column for role, column in named.items() if column is not None}

    @model_validator(mode="after")
    def _names(self) -> Attachment:
        if any("%" in name for name in (self.table, self.schema_name, *self.roles.values())):
            raise ValueError("names cannot contain a percent sign")
        return self


class PgvectorConfig(ProviderConfig):
    """Settings of the database and its use; RFC 0010 explains them."""

    dsn: SecretStr | None = Field(
        default=None,
        description="Connection string or URL as libpq takes it, instead of host, port, database, "
        "user, password and the ssl settings.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="The server's host.")
    port: int = Field(default=5432, ge=1, le=65535, description="The server's port.")
    database: str = Field(default="corral", min_length=1, description="Name of the database.")
    user: str = Field(default="corral", min_length=1, description="Role to connect as.")
    password: SecretStr | None = Field(default=None, description="The role's password.")
    ssl_mode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        default="prefer", description="`verify-full` over a network that is not yours."
    )
    ssl_root_certificate: Path | None = Field(
        default=None, description="Certificates that verify-ca and verify-full trust."
    )
    schema_name: str = Field(
        default="corral",
        pattern=r"^[^%\x00]{1,63}$",
        description="Schema of the tables; made where it is absent and the role may.",
    )
    max_connections: int = Field(
        default=10, ge=1, le=1000, description="Most connections of this process; opened as needed."
    )
    connect_timeout_seconds: float = Field(
        default=5, gt=0, le=600, description="How long a request waits for a connection."
    )
    statement_timeout_seconds: float = Field(
        default=60,
        gt=0,
        le=86_400,
        description="How long one statement may take; index builds excepted.",
    )
    keyword: Literal["bm25", "ts_rank_cd"] = Field(
        default="bm25",
        description="bm25: Corral's terms and scores, as on every backend. ts_rank_cd: "
        "PostgreSQL's full text search, title A, categories B, content C.",
    )
    text_search_configuration: str | None = Field(
        default=None,
        pattern=r"^[^%\x00]{1,63}$",
        description="For ts_rank_cd; by default the one of the vector DB's language, or `simple`.",
    )
    exact_below_rows: int = Field(
        default=5000,
        ge=0,
        description="Up to this many chunks, or chunks that pass the filter, the search is exact; "
        "beyond it uses the HNSW index, which is built when a vector DB reaches the number.",
    )
    hnsw_m: int = Field(default=12, ge=2, le=100, description="Links of a node; for new indexes.")
    hnsw_ef_construction: int = Field(
        default=80,
        ge=4,
        le=1000,
        description="Candidates for the links of a chunk, at least 2 * hnsw_m; for new indexes. "
        "Too few leave small topics without a link to others, and no search finds them.",
    )
    hnsw_build_memory_mib: int = Field(
        default=512,
        ge=1,
        le=1_000_000,
        description="Most memory that PostgreSQL takes to build an index, in MiB; it is many times "
        "slower with less than the index needs, about 2.5 kB for a chunk of 384 dimensions.",
    )
    hnsw_ef_search: int = Field(
        default=200,
        ge=1,
        le=1000,
        description="Candidates of a search: more is slower and more exact.",
    )
    hnsw_max_scan_tuples: int = Field(
        default=20_000, ge=1, description="Where a filtered search of the HNSW index ends."
    )
    scope_role: str | None = Field(
        default=None,
        pattern=r"^[^%\x00]{1,63}$",
        description="A role as which restricted users read, so that PostgreSQL applies acls a "
        "second time, by row-level security; granted to `user`.",
    )
    attach: dict[str, Attachment] = Field(
        default_factory=dict,
        description="By a name, the existing table that a vector DB of this id, or one registered "
        "with this provider_vector_db_id, reads instead of one made for it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_address(cls, data: Any) -> Any:
        given = sorted(_ADDRESS & set(data)) if isinstance(data, dict) and data.get("dsn") else []
        if given:
            raise ValueError(f"dsn replaces other settings; remove {', '.join(given)}")
        return data

    @model_validator(mode="after")
    def _construction(self) -> PgvectorConfig:
        if self.hnsw_ef_construction < 2 * self.hnsw_m:
            raise ValueError("hnsw_ef_construction must be >= 2 * hnsw_m")
        return self
