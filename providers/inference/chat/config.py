"""Settings of remote::chat."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.providers.models.http_service import ServiceConfig
from corral.providers.models.names import ModelName, each_once


class ChatConfig(ServiceConfig):
    """Settings of a chat service: address, models and limits of their answers.

    Attributes:
        base_url: The address of the service, up to but without `/chat/completions`, as in OpenAI
            clients.
        models: The models that a request may name, at least one.
        image_models: The `models` that read images; default none.
        max_output_tokens: Maximum tokens of a rewritten question; default 128. Chat requests set
            their own limit.
        reasoning: True for OpenAI's reasoning models: the limit is sent as `max_completion_tokens`,
            without a temperature, which they reject. Reasoning tokens count, so increase
            `max_output_tokens`. Default false: `max_tokens`, and temperature 0.
        timeout_seconds: Maximum wait for an answer to begin, and then for each piece; default 30.
        max_retries: Further attempts if the connection fails; default 1. Error responses are not
            retried.
        retry_delay_seconds: Pause before the first retry; default 0.2.
    """

    models: Annotated[list[ModelName], AfterValidator(each_once)] = Field(min_length=1)
    image_models: Annotated[list[ModelName], AfterValidator(each_once)] = Field(
        default_factory=list
    )
    max_output_tokens: int = Field(default=128, ge=1, le=100_000)
    reasoning: bool = False
    timeout_seconds: float = Field(default=30, gt=0, le=600)
    max_retries: int = Field(default=1, ge=0, le=10)
    retry_delay_seconds: float = Field(default=0.2, gt=0, le=60)
