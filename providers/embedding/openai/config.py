"""Settings of remote::openai."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.http_service import ServiceConfig
from corral.providers.models.names import each_once


class OpenAIModel(ProviderConfig):
    """One model of the service.

    Attributes:
        model: The model's name, sent to the service and registered with vector DBs.
        dimension: Numbers in an embedding, at least 1. A response with another dimension is
            rejected.
        max_tokens: Tokens that the model reads; for information only: the service truncates or
            rejects longer texts. Default: unknown.
        send_dimensions: True to ask the service for `dimension`, for models that can shorten their
            embeddings. Off by default, because other services reject the field.
        query_prefix: Put before questions, for example `query: ` with the E5 models.
        document_prefix: Put before texts to be stored, for example `passage: `.
    """

    model: str = Field(min_length=1)
    dimension: int = Field(ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    send_dimensions: bool = False
    query_prefix: str = ""
    document_prefix: str = ""


class OpenAIConfig(ServiceConfig):
    """Settings of an embedding service: address, models, timeouts and retries.

    Attributes:
        base_url: The address of the service, up to but without `/embeddings`, as in OpenAI clients.
        models: At least one, with different names.
        timeout_seconds: Time limit of one batch, including all attempts and pauses; default 60,
            because a service may load its model at the first call.
        max_retries: Further attempts if the service cannot be reached or answers 429 or 5xx;
            default 4.
        retry_delay_seconds: Pause before the first retry; default 0.5.
        batch_size: Texts per request; default 32, which every known service accepts.
        max_concurrency: Concurrent batches of documents, over all models; default 4. Questions do
            not wait for them.
    """

    models: Annotated[list[OpenAIModel], AfterValidator(each_once)] = Field(min_length=1)
    batch_size: int = Field(default=32, ge=1, le=2048)
    max_concurrency: int = Field(default=4, ge=1, le=64)
