"""Metrics and readiness."""

from __future__ import annotations

import asyncio
import time
from typing import Literal, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from corral.api.errors import NotFound, Unavailable
from corral.api.principal import Role
from corral.api.provider import Api
from corral.providers.stack.configured import ProviderStatus
from corral.providers.stack.stack import Stack
from corral.server.access.roles import PUBLIC, Needs
from corral.server.errors import ERRORS, ErrorBody, response_of
from corral.server.routing import NotFoundRoute
from corral.server.telemetry.metrics import Metrics

router = APIRouter(tags=["Inspect"], route_class=NotFoundRoute, responses=ERRORS)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_SECONDS = 2.0
"""Seconds to reuse the state of the backends, because readiness is a public route."""
ASKING_SECONDS = 2.0
"""A provider that takes longer to report its health counts as failed, because load balancers do not
wait."""


class ProviderState(BaseModel):
    """Health of a provider."""

    kind: str = Field(description="Its section in run.yaml.")
    provider_id: str
    status: Literal["OK", "Error"]


class ReadyReply(BaseModel):
    """The server is ready."""

    status: Literal["ready"] = "ready"
    providers: list[ProviderState]


class NotReadyReply(ErrorBody):
    """The server is not ready."""

    providers: list[ProviderState] | None = Field(
        default=None, description="The state of each provider."
    )


class Readiness:
    """Checks the providers' health, and caches the result briefly."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._states: list[ProviderState] = []

    async def of(self, stack: Stack) -> list[ProviderState]:
        """Return the state of every provider, the default of each kind first."""
        async with self._asking:
            if time.monotonic() >= self._asked_at + FRESH_SECONDS:
                statuses = await stack.providers(ASKING_SECONDS)
                self._states = [_state(provider) for provider in statuses]
                self._asked_at = time.monotonic()
        return self._states


def _check_defaults(states: list[ProviderState]) -> None:
    """Raise Unavailable if the default vector_io or embedding provider cannot serve."""
    for kind in (Api.VECTOR_IO, Api.EMBEDDING):
        first = next(state for state in states if state.kind == kind)
        if first.status != "OK":
            raise Unavailable(
                f"Not ready: the {kind} provider {first.provider_id!r} cannot serve.",
                hint="/v1/providers says why.",
            )


def _state(provider: ProviderStatus) -> ProviderState:
    return ProviderState(
        kind=provider.api, provider_id=provider.provider_id, status=provider.health.status
    )


@router.get(
    "/v1/ready",
    summary="Is the server ready?",
    dependencies=[PUBLIC],
    response_model=ReadyReply,
    responses={
        "5XX": {
            "model": NotReadyReply,
            "description": "503: a default cannot serve, or the server stops.",
        }
    },
)
async def ready(request: Request) -> ReadyReply | Response:
    """Return every provider's state; 503 if the default vector_io or embedding provider fails.

    A provider that takes more than two seconds to answer is an Error. See `/v1/providers` for the
    cause of an error. The answer can be two seconds old. A server that was told to stop answers
    503, too.
    """
    if request.app.state.draining:
        return response_of(Unavailable("Not ready: the server is stopping."))
    readiness = cast(Readiness, request.app.state.readiness)
    states = await readiness.of(request.app.state.stack)
    try:
        _check_defaults(states)
    except Unavailable as error:
        return response_of(error, more={"providers": [state.model_dump() for state in states]})
    return ReadyReply(providers=states)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    dependencies=[Depends(Needs(Role.READER, operator=True))],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format."}},
)
async def metrics(request: Request) -> Response:
    """Return requests, times by step, candidates, tokens, errors and jobs in Prometheus' format."""
    counted: Metrics | None = request.app.state.metrics
    if counted is None:
        raise NotFound("Metrics are off.", hint="The operator's setting is server.metrics.")
    stack = cast(Stack, request.app.state.stack)
    counted.set_jobs(await stack.ingestion.backlog())
    return Response(counted.exposition(), headers={"content-type": CONTENT_TYPE})
