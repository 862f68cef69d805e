"""Settings of remote::rerank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corral.providers.models.http_service import ServiceConfig
from corral.providers.models.names import ModelName, each_once

Dialect = Literal["cohere", "jina", "vllm", "tei"]

_BATCHES: dict[Dialect, int] = {"cohere": 100, "jina": 100, "vllm": 100, "tei": 32}
"""TEI refuses more than 32 unless it was started with another `--max-client-batch-size`; Cohere
bills up to 100 documents as one search."""


class HTTPRerankConfig(ServiceConfig):
    """The service, its models, and the form of its scores.

    Attributes:
        base_url: The part before `/rerank`.
        dialect: The form of the service's requests and answers.
        models: At least one. Sent to the service, except to `tei`, which serves one model and takes
            no name.
        score: The form of the service's scores. `as_is`: in [0, 1] already, as all four dialects
            answer by default. `sigmoid`: raw logits, mapped by 1 / (1 + exp(-s)). `cosine`: in
            [-1, 1], as jina-reranker-v3 answers, mapped by (1 + s) / 2.
        batch_size: Maximum texts of a request; all requests of one re-ranking run at once. Default
            32 for `tei`, else 100.
        timeout_seconds: Limit of one re-ranking; default 10, since a user waits.
        max_retries: Further attempts if a connection fails; default 1. An answer of any status
            is not tried again.
        retry_delay_seconds: Default 0.2.
    """

    dialect: Dialect
    models: Annotated[list[ModelName], AfterValidator(each_once)] = Field(min_length=1)
    score: Literal["as_is", "sigmoid", "cosine"] = "as_is"
    batch_size: int | None = Field(default=None, ge=1, le=1000)
    timeout_seconds: float = Field(default=10, gt=0, le=600)
    max_retries: int = Field(default=1, ge=0, le=10)
    retry_delay_seconds: float = Field(default=0.2, gt=0, le=60)

    @property
    def batch(self) -> int:
        """Maximum number of texts of one request, the dialect's default filled in."""
        return self.batch_size or _BATCHES[self.dialect]
