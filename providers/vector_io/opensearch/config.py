"""Settings of remote::opensearch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from corral.api.provider import ProviderConfig
from corral.providers.vector_io.kit.statistics import DEFAULT_MAX_AGE_SECONDS, MaxAge
from corral.providers.vector_io.kit.urls import server_url

Url = Annotated[
    str,
    server_url(
        "http://127.0.0.1:9200",
        "put them into user and password",
        without=("path", "query", "fragment"),
    ),
]


class OpenSearchConfig(ProviderConfig):
    """Settings of remote::opensearch."""

    url: Url = Field(
        default="http://127.0.0.1:9200",
        description="Address of a node or load balancer; https switches TLS on.",
    )
    other_urls: list[Url] = Field(
        default_factory=list,
        description="Further nodes of the same cluster. Requests alternate between all nodes and "
        "leave out a node that cannot be reached.",
    )
    user: str = Field(default="", description="User name of the security plugin.")
    password: SecretStr | None = Field(
        default=None, description="Sent with each request. Use TLS with it."
    )
    ca_file: Path | None = Field(
        default=None,
        description="Certificates of the authorities to trust, as PEM; default: certifi's.",
    )
    aws_region: str = Field(
        default="",
        pattern="^[a-z0-9-]*$",
        description="Region of an Amazon OpenSearch Service domain. Requests are then signed "
        "(Signature Version 4) with the credentials that botocore finds.",
    )
    timeout_seconds: float = Field(
        default=10, gt=0, le=600, description="Maximum time of a request, retries included."
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="Retries if the cluster is unreachable or overloaded, after 0.1, 0.2, ... "
        "seconds; never after a timeout.",
    )
    max_connections: int = Field(
        default=32, ge=1, le=1000, description="Connections of one process to each node."
    )
    index_prefix: str = Field(
        default="corral-",
        pattern="^[a-z][a-z0-9_-]{0,63}$",
        description="Prefix of the names of Corral's indexes.",
    )
    exact: bool = Field(
        default=False, description="Compare the query with every embedding, without the graph."
    )
    hnsw_m: int = Field(
        default=32, ge=2, le=100, description="Edges per chunk in the graph. For new vector DBs."
    )
    hnsw_ef_construction: int = Field(
        default=128,
        ge=2,
        le=10_000,
        description="Candidates for the edges of a new chunk. For new vector DBs.",
    )
    hnsw_ef: int = Field(default=256, ge=1, le=10_000, description="Candidates per search.")
    statistics_max_age_seconds: MaxAge = DEFAULT_MAX_AGE_SECONDS
    shards: int = Field(
        default=1, ge=1, le=1024, description="Primary shards of a new vector DB's index."
    )
    replicas: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Copies of each shard beside the primary. For new vector DBs; default: the "
        "cluster's number, usually 1.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> OpenSearchConfig:
        """Raise ValueError if settings contradict each other."""
        if bool(self.user) != (self.password is not None):
            raise ValueError("user and password must be set together")
        if self.user and self.aws_region:
            raise ValueError("aws_region signs requests; leave out user and password")
        if len({url.split(":")[0] for url in (self.url, *self.other_urls)}) > 1:
            raise ValueError("url and other_urls must have the same scheme")
        return self
