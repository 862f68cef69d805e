"""The server: one FastAPI app over one stack; `serving.py` runs it."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from importlib import metadata
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute

from corral.api.errors import MissingDependency
from corral.api.principal import Principal
from corral.api.spans import Watcher, watched_by
from corral.providers.base.config import RunConfig, data_home, load_config
from corral.providers.rag.tool import RagTool
from corral.providers.stack.background import Sweep, SyncSchedule, Warmup
from corral.providers.stack.stack import Stack
from corral.server import DISTRIBUTION
from corral.server.access.gate import Access, Gate
from corral.server.envelope import Envelope
from corral.server.errors import install
from corral.server.hosts import HostCheck
from corral.server.limits import BodyLimit
from corral.server.llama_stack import inspect, tool_runtime, vector_dbs, vector_io
from corral.server.mcp import routes as mcp
from corral.server.native import (
    chunks,
    copies,
    documents,
    jobs,
    judgments,
    keys,
    orphans,
    pages,
    rebuilds,
    rerank,
    snapshots,
    syncs,
)
from corral.server.native.document_paths import RegisteredIds
from corral.server.openai import alias
from corral.server.page import document as document_page
from corral.server.page import routes as page
from corral.server.routers import Application, ApplicationForms, installed_applications
from corral.server.routing import routes_of
from corral.server.telemetry import routes as telemetry
from corral.server.telemetry.metrics import Metrics
from corral.server.tools import functions

ROUTERS = (
    documents.router,  # before vector_dbs, whose ids may contain anything
    vector_dbs.router,
    copies.router,
    rebuilds.router,
    syncs.router,
    snapshots.router,
    orphans.router,
    vector_io.inserts,
    vector_io.router,
    chunks.router,
    pages.router,
    tool_runtime.inserts,
    tool_runtime.router,
    jobs.router,
    judgments.router,
    *alias.SHARED,
    alias.router,
    inspect.router,
    keys.router,
    mcp.router,
    telemetry.router,
    functions.router,
    rerank.router,
    document_page.router,
    page.reports,
    page.router,
)
"""Corral's own routes, in the order of the documentation; applications' routes follow."""
ROUTES = [route for router in ROUTERS for route in routes_of(router)]

DESCRIPTION = """\
Vector, keyword and hybrid search over any vector database. Register a *vector DB* with a search
mode, insert chunks or documents, and ask questions: the RAG tool searches, fuses the results and
assembles a context within a token budget.

* Every score is in [0, 1], and higher is better, on every backend and in every mode.
* The request wins over the registration, the registration over the default. Unknown keys are
  errors.
* Every error has the same format; `error.message` says what to do.
"""

TAGS = [
    {"name": "Vector DBs", "description": "Register vector DBs, and set how to search them."},
    {
        "name": "Chunks",
        "description": "Insert and query single chunks, with or without your own embeddings.",
    },
    {
        "name": "Documents",
        "description": "List, show and delete stored documents, and set who may read them.",
    },
    {
        "name": "RAG tool",
        "description": "Insert documents, ask questions, get a context within a token budget.",
    },
    {
        "name": "Vector stores",
        "description": "OpenAI's view of the vector DBs. Also under /v1/openai/v1.",
    },
    {"name": "Files", "description": "OpenAI's API for uploaded files."},
    {"name": "Embeddings", "description": "OpenAI's API for the configured embedding models."},
    {"name": "Answers", "description": "OpenAI's API for the configured language models."},
    {"name": "Agents", "description": "Tools for agents, over MCP and as functions."},
    {"name": "Jobs", "description": "Ingest documents in the background."},
    {
        "name": "Evaluation",
        "description": "Judge what is found, and tune a vector DB with the judgments.",
    },
    {"name": "Models", "description": "Re-ranking as a service."},
    {"name": "Keys", "description": "Create, list and revoke API keys."},
    {"name": "Inspect", "description": "Health, version, providers, models."},
]


def create_app(
    config: RunConfig | None = None,
    home: Path | None = None,
    operator: Principal | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Return the app; its lifespan opens and closes the stack.

    While it runs, `app.state.stack` is the stack. In process, run it under
    `app.router.lifespan_context(app)`.

    Args:
        config: The configuration; None reads `run.yaml` in the data folder.
        home: The data folder; None takes `$CORRAL_HOME` or `~/.corral`.
        operator: The principal of every request; None: identified by key or token, see `Callers`.
        clock: Returns the time, in Unix seconds.

    Raises:
        ConfigError: The configuration cannot be read, or an installed router is broken. Invalid
            settings of providers fail on start.
    """
    folder = home or data_home()
    settings = config or load_config(home=folder)

    # Commands do not use them, so a broken router does not stop a command.
    applications = [] if operator else installed_applications(ROUTES)
    metrics = Metrics() if settings.server.metrics else None
    watchers: list[Watcher] = [metrics] if metrics else []
    app = FastAPI(
        title="Corral",
        version=metadata.version(DISTRIBUTION),
        description=DESCRIPTION,
        openapi_tags=[*TAGS, *filter(None, map(_tag, applications))],
        lifespan=_lifespan(settings, folder, operator, clock, watchers),
        openapi_url=None,  # Corral's own, so that every route declares its role
        # Corral's own, because FastAPI's load files from other hosts; see routes.pages
        docs_url=None,
        redoc_url=None,
        # an id may end with a slash, and a redirect would trust the Host header
        redirect_slashes=False,
    )
    app.state.applications = [rerank.COHERE, *applications]
    app.state.limits = settings.server.limits
    app.state.readiness = telemetry.Readiness()
    app.state.draining = False  # True once the server was told to stop
    app.state.metrics = metrics
    slots = partial(asyncio.Semaphore, settings.server.limits.max_concurrent_inserts)
    app.state.insert_slots = defaultdict(slots)  # by providers, see InsertRoute
    routes = [*ROUTES, *(route for each in applications for route in each.routes)]
    _add_middleware(app, settings, routes, watchers)
    install(app)
    # include_router would analyze each endpoint again for every app: 0.5 s of every command.
    app.router.routes.extend(routes)
    return app


def _tag(application: Application) -> dict[str, str] | None:
    """Return an application's tag with its description, None if it has none."""
    if not (application.router.tags and application.description):
        return None
    return {"name": str(application.router.tags[0]), "description": application.description}


def _lifespan(
    settings: RunConfig,
    folder: Path,
    operator: Principal | None,
    clock: Callable[[], float],
    watchers: list[Watcher],
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of an app, which opens and closes the stack."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            stack = Stack(settings, folder, clock=clock)
            opened.push_async_callback(stack.close)
            access = Access.of(settings.server, folder, stack.state, operator)
            opened.push_async_callback(access.close)
            sweep, warmup, schedule = Sweep(stack), Warmup(stack), SyncSchedule(stack)
            opened.push_async_callback(sweep.close)
            opened.push_async_callback(warmup.close)
            opened.push_async_callback(schedule.close)
            app.state.access = access
            app.state.stack = stack
            app.state.rag_tool = RagTool(stack, limits=settings.server.limits)
            opened.enter_context(_traced(settings, watchers))
            if operator is None:  # a command works only on the jobs that it submits
                with watched_by(*watchers):
                    await stack.ingestion.start()
                    sweep.start()
                    warmup.start()
                    schedule.start()
            async with mcp.sessions(app):
                yield

    return lifespan


def _add_middleware(
    app: FastAPI, settings: RunConfig, routes: Sequence[APIRoute], watchers: Sequence[Watcher]
) -> None:
    """Add the middleware, innermost first."""
    app.add_middleware(RegisteredIds)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Gate, routes=routes)
    app.add_middleware(document_page.RefusalPages)
    app.add_middleware(
        ApplicationForms, applications=app.state.applications, settings=settings.server
    )
    app.add_middleware(HostCheck, settings=settings.server)
    app.add_middleware(Envelope, routes=routes, watchers=watchers)


@contextmanager
def _traced(config: RunConfig, watchers: list[Watcher]) -> Iterator[None]:
    """Send traces while the app runs, if it is configured to."""
    if config.server.tracing is None:
        yield
        return
    try:
        from corral.server.telemetry.traces import Traces  # noqa: PLC0415 - its extra may be absent
    except ImportError:
        command = "pip install 'corral-rag[tracing]'"
        raise MissingDependency("server.tracing", "opentelemetry-sdk", command) from None
    types = {entry.provider_id: entry.provider_type for entry in config.providers.vector_io}
    traces = Traces(config.server.tracing, types)
    watchers.append(traces)
    try:
        yield
    finally:
        watchers.remove(traces)
        traces.close()
