"""Settings of remote::chat."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.providers.models.http_service import ServiceConfig
from corral.providers.models.names import ModelName, each_once


class ChatConfig(ServiceConfig):
    """Settings of a chat service: address, models and limits of their answers.

    Attributes:
        base_url: The part before `/chat/completions`, as OpenAI clients take it.
        models: At least one; what a request may name.
        image_models: The `models` that read images; default none.
        max_output_tokens: Longest rewritten question; default 128. A chat has its own bound.
        reasoning: For OpenAI's models that think first: the bound is sent as
            `max_completion_tokens`, and no temperature, which they refuse. Their thoughts count:
            raise `max_output_tokens`. Default off: `max_tokens`, and temperature 0.
        timeout_seconds: Maximum wait for an answer to begin, and then for each piece; default 30.
        max_retries: Further attempts where a connection fails; default 1. An answer of any status
            is not tried again.
        retry_delay_seconds: Default 0.2.
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
