"""Settings of remote::rerank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corral.providers.models.http_service import ServiceConfig
from corral.providers.models.names import ModelName, each_once

Dialect = Literal["cohere", "jina", "vllm", "tei"]

_BATCHES: dict[Dialect, int] = {"cohere": 100, "jina": 100, "vllm": 100, "tei": 32}
"""Default batch sizes. TEI refuses more than 32 texts unless it was started with a larger
`--max-client-batch-size`; Cohere bills up to 100 documents as one search."""


class HTTPRerankConfig(ServiceConfig):
    """The service, its models, and the range of its scores.

    Attributes:
        base_url: The address of the service, up to but without `/rerank`.
        dialect: The format of requests and answers: `cohere`, `jina`, `vllm` or `tei`.
        models: At least one name. It is sent to the service, except with `tei`, which serves a
            single model and takes no name.
        score: The range of the service's scores. `as_is`: already in [0, 1], the default of all
            four dialects. `sigmoid`: raw logits, mapped by 1 / (1 + exp(-s)). `cosine`: in [-1, 1],
            as from jina-reranker-v3, mapped by (1 + s) / 2.
        batch_size: Maximum number of texts per request; all requests of one re-ranking run
            concurrently. Default 32 for `tei`, else 100.
        timeout_seconds: Time limit of one request; default 10, since a user is waiting.
        max_retries: Further attempts if a connection fails; default 1. Error responses are not
            retried.
        retry_delay_seconds: Pause before the first retry; default 0.2.
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
        """Maximum number of texts per request: `batch_size`, or the dialect's default."""
        return self.batch_size or _BATCHES[self.dialect]
