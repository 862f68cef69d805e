"""Settings of inline::qdrant and remote::qdrant."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from corral.api.provider import ProviderConfig
from corral.providers.vector_io.kit.statistics import DEFAULT_MAX_AGE_SECONDS, MaxAge
from corral.providers.vector_io.kit.urls import server_url
from corral.providers.vector_io.store.config import ChunkFileConfig


class QdrantEdgeConfig(ChunkFileConfig):
    """Settings of inline::qdrant; every default suits a laptop."""

    approximate_from: int = Field(
        default=10_000,
        ge=1,
        description="Fewest chunks for which an HNSW graph is built; fewer are searched exactly.",
    )
    exact: bool = Field(
        default=False,
        description="Whether to compare with every vector instead of asking the HNSW graph.",
    )
    hnsw_ef: int = Field(
        default=128,
        ge=1,
        le=10_000,
        description="Candidates that a search of the HNSW graph keeps.",
    )


class QdrantConfig(ProviderConfig):
    """Settings of remote::qdrant."""

    url: Annotated[str, server_url("http://127.0.0.1:6333", "put the key into api_key")] = Field(
        default="http://127.0.0.1:6333",
        description="The server's REST address; https:// switches TLS on, for gRPC as well.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="Sent with each request. Use TLS with it."
    )
    transport: Literal["rest", "grpc"] = Field(
        default="rest", description="gRPC is the faster one for large embeddings."
    )
    grpc_port: int = Field(default=6334, ge=1, le=65535, description="The server's port for gRPC.")
    timeout_seconds: int = Field(
        default=10, ge=1, le=600, description="How long one request to the server may take."
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="How often a request is sent again when the server cannot be reached, after "
        "0.1 seconds at first, then twice as long each time.",
    )
    max_connections: int = Field(
        default=32, ge=1, le=1024, description="Of one process to the server."
    )
    collection_prefix: str = Field(
        default="corral-",
        pattern="^[A-Za-z0-9_-]{0,64}$",
        description="How the names of Corral's collections begin.",
    )
    exact: bool = Field(
        default=False,
        description="Whether to compare with every vector instead of asking the HNSW graph.",
    )
    hnsw_ef: int = Field(
        default=128,
        ge=1,
        le=10_000,
        description="Candidates that a search of the HNSW graph keeps.",
    )
    statistics_max_age_seconds: MaxAge = DEFAULT_MAX_AGE_SECONDS
    shards: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Shards of a new collection; None leaves it to the server.",
    )
    replicas: int | None = Field(
        default=None, ge=1, le=100, description="Copies of each shard of a new collection."
    )
