"""Settings of inline::chroma and remote::chroma."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from corral.api.provider import ProviderConfig
from corral.api.scoring import Metric
from corral.providers.vector_io.kit.urls import server_url
from corral.providers.vector_io.store.config import ChunkFileConfig


def _header_values(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        text = name + value.get_secret_value()
        if not (name and text.isascii() and text.isprintable()):
            raise ValueError(f"{name!r} and its value must be printable ASCII")
    return headers


class GraphConfig(ProviderConfig):
    """Settings of a collection's graph, fixed when the collection is created.

    The defaults reach a recall above 0.99 for the ten nearest of 20,000 embeddings (README).
    """

    ef_search: int = Field(
        default=200,
        ge=10,
        le=10_000,
        description="Candidates of a search; more find more and take longer.",
    )
    ef_construction: int = Field(
        default=200, ge=10, le=10_000, description="Candidates for the edges of a new chunk."
    )
    max_neighbors: int = Field(
        default=16, ge=4, le=256, description="Edges of a chunk in the graph."
    )

    def graph(self, metric: Metric) -> dict[str, str | int]:
        """Return Chroma's configuration of a graph."""
        space = {Metric.COSINE: "cosine", Metric.L2: "l2", Metric.DOT: "ip"}[metric]
        return {"space": space, **self.model_dump(include=set(GraphConfig.model_fields))}


class ChromaConfig(ChunkFileConfig, GraphConfig):
    """Settings of inline::chroma."""

    approximate_from: int = Field(
        default=10_000,
        ge=1,
        description="Fewest chunks for which there is a collection; fewer are searched exactly.",
    )


class RemoteChromaConfig(GraphConfig):
    """Settings of remote::chroma."""

    folder: Path | None = Field(
        default=None,
        description="Where the mirrors are; a folder named by provider_id in the data folder.",
    )
    keyword_memory_mib: float = Field(
        default=64, ge=0, description="Memory for cached postings of common words, per vector DB."
    )
    url: Annotated[
        str,
        server_url(
            "http://127.0.0.1:8000", "put a key into headers", without=("query", "fragment")
        ),
    ] = Field(default="http://127.0.0.1:8000", description="The server, without /api.")
    tenant: str = Field(default="default_tenant", min_length=1, description="Chroma's tenant.")
    database: str = Field(default="default_database", min_length=1, description="Its database.")
    headers: Annotated[dict[str, SecretStr], AfterValidator(_header_values)] = Field(
        default_factory=dict,
        description="Sent with every request, such as the key that a proxy before Chroma wants.",
    )
    timeout_seconds: float = Field(
        default=30, gt=0, le=3600, description="Bound of one request, retries included."
    )
    max_retries: int = Field(
        default=3, ge=0, le=10, description="Further attempts if the connection fails."
    )
    retry_delay_seconds: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Pause before the first of them; it doubles each time.",
    )
    max_connections: int = Field(
        default=16, ge=1, le=256, description="Connections to the server, and requests at a time."
    )
