"""Settings of remote::weaviate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from corral.api.provider import ProviderConfig
from corral.providers.vector_io.kit.statistics import DEFAULT_MAX_AGE_SECONDS, MaxAge
from corral.providers.vector_io.kit.urls import server_url


class WeaviateConfig(ProviderConfig):
    """Settings of remote::weaviate."""

    url: Annotated[
        str,
        server_url("http://127.0.0.1:8080", "put the key into api_key", without=("path", "query")),
    ] = Field(
        default="http://127.0.0.1:8080",
        description="The server's REST address; https switches TLS on, for gRPC as well.",
    )
    grpc_host: str = Field(
        default="",
        description="Host of gRPC; empty: the host of url. Weaviate Cloud has one of its own.",
    )
    grpc_port: int = Field(default=50051, ge=1, le=65535, description="443 at Weaviate Cloud.")
    api_key: SecretStr | None = Field(
        default=None, description="Sent with each request. Use TLS with it."
    )
    timeout_seconds: float = Field(
        default=10,
        gt=0,
        le=600,
        description="Bound of one request to the server, retries included.",
    )
    trust_environment: bool = Field(
        default=False, description="Whether HTTP_PROXY, GRPC_PROXY and SSL_CERT_FILE are followed."
    )
    collection_prefix: str = Field(
        default="Corral_",
        pattern="^[A-Z][A-Za-z0-9_]{0,63}$",
        description="How the names of Corral's collections begin.",
    )
    index: Literal["hnsw", "flat"] = Field(
        default="hnsw", description="flat compares with every embedding. For new vector DBs."
    )
    hnsw_max_connections: int = Field(
        default=32, ge=4, le=2047, description="Edges of a chunk in the graph. For new vector DBs."
    )
    hnsw_ef_construction: int = Field(
        default=128, ge=4, le=10_000, description="Candidates looked at when a chunk is added."
    )
    hnsw_ef: int = Field(
        default=128,
        ge=1,
        le=10_000,
        description="Candidates looked at by a search; more find more.",
    )
    statistics_max_age_seconds: MaxAge = DEFAULT_MAX_AGE_SECONDS
    replicas: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Copies of a new vector DB in a cluster; default: the server's number. A write "
        "waits for all of them.",
    )
