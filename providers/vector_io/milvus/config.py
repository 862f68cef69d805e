"""Settings of inline::milvus and remote::milvus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from corral.api.provider import ProviderConfig
from corral.providers.vector_io.kit.statistics import DEFAULT_MAX_AGE_SECONDS, MaxAge
from corral.providers.vector_io.kit.urls import server_url


class MilvusConfig(ProviderConfig):
    """Settings of inline::milvus."""

    folder: Path | None = Field(
        default=None,
        description="Where the files are; a folder named by provider_id in the data folder.",
    )


class RemoteMilvusConfig(ProviderConfig):
    """Settings of remote::milvus."""

    uri: Annotated[
        str,
        server_url(
            "http://127.0.0.1:19530", "put them into token", schemes=("http", "https", "tcp")
        ),
    ] = Field(default="http://127.0.0.1:19530", description="The server; https for TLS.")
    token: SecretStr = Field(default=SecretStr(""), description="user:password, or an API key.")
    database: str = Field(default="", description="Milvus database; empty for the default one.")
    collection_prefix: str = Field(
        default="corral_",
        pattern="^[A-Za-z_][A-Za-z0-9_]{0,31}$",
        description="What the names of Corral's collections begin with.",
    )
    certificate: Path | None = Field(
        default=None, description="PEM file of the authority that signed the server's certificate."
    )
    timeout_seconds: float = Field(
        default=10,
        gt=0,
        le=3600,
        description="Bound of one request to the server, retries included.",
    )
    statistics_max_age_seconds: MaxAge = DEFAULT_MAX_AGE_SECONDS
    index: Literal["HNSW", "FLAT"] = Field(
        default="HNSW", description="FLAT is exact and reads every embedding. For new vector DBs."
    )
    hnsw_m: int = Field(default=16, ge=2, le=2048, description="Edges of a chunk in the graph.")
    hnsw_ef_construction: int = Field(
        default=200, ge=8, le=10_000, description="Candidates looked at when a chunk is added."
    )
    hnsw_ef_search: int = Field(
        default=128,
        ge=8,
        le=16_384,
        description="Candidates looked at by a search; more find more.",
    )
