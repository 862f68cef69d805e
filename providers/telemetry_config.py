"""The section `server.tracing`: where traces go."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from corral.providers.config_section import Section


class TracingSettings(Section):
    """Traces over OTLP/HTTP, one span for each room on the road of a query."""

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] = Field(
        default="http://127.0.0.1:4318/v1/traces", description="The collector's address."
    )
    service_name: str = Field(default="corral", min_length=1, max_length=255)
    sample_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of traces that are sent; a caller's decision wins.",
    )
    timeout_seconds: float = Field(default=10, gt=0, le=60, description="Of one batch of spans.")
    texts: bool = Field(default=False, description="Put the questions into the spans.")
