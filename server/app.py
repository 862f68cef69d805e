"""The server: one FastAPI app over one stack, and the way to run it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.routing import APIRoute

from corral.api.errors import ConfigError, MissingDependency
from corral.api.principal import Principal
from corral.api.provider import Api
from corral.api.spans import Watcher, watched_by
from corral.providers.config import HOME_VARIABLE, RunConfig, data_home, load_config
from corral.providers.registry import find_spec
from corral.providers.stack import Stack
from corral.providers.sweeping import Sweep
from corral.providers.telemetry_config import TracingSettings
from corral.providers.warming import Warmup
from corral.server import DISTRIBUTION
from corral.server.access.audited import AuditedRagTool
from corral.server.access.gate import Access, Gate
from corral.server.applications import dify, functions, librechat, qdrant, rerank
from corral.server.applications.forms import ApplicationForms
from corral.server.corral import (
    chunks,
    copies,
    documents,
    jobs,
    limits,
    orphans,
    rebuilds,
    snapshots,
)
from corral.server.corral.document_paths import RegisteredIds
from corral.server.envelope import Envelope
from corral.server.errors import install
from corral.server.hosts import HostCheck
from corral.server.limits import BodyLimit
from corral.server.llama_stack import inspect, tool_runtime, vector_dbs, vector_io
from corral.server.mcp import routes as mcp
from corral.server.openai import alias
from corral.server.page import reports
from corral.server.page import routes as page
from corral.server.telemetry import routes as telemetry
from corral.server.telemetry.logs import log_config
from corral.server.telemetry.metrics import Metrics, shared

ROUTERS = (
    documents.router,  # before vector_dbs, whose ids may hold anything
    vector_dbs.router,
    copies.router,
    rebuilds.router,
    snapshots.router,
    orphans.router,
    vector_io.inserts,
    vector_io.router,
    chunks.router,
    tool_runtime.inserts,
    tool_runtime.router,
    jobs.router,
    *alias.SHARED,
    alias.router,
    inspect.router,
    limits.router,
    mcp.router,
    telemetry.router,
    functions.router,
    rerank.router,
    qdrant.router,
    dify.router,
    librechat.uploads,
    librechat.router,
    reports.router,
    page.router,
)
"""All routes, in the order of the documentation."""

MAX_HEADER_BYTES = 32 * 1024
"""About the most that the headers of a request may take."""

WORKER_VARIABLE = "CORRAL_SERVE"
"""Environment variable by which `serve` tells its processes what they run on."""

GRACE_SECONDS = 10
"""How long requests at work may take after the server was told to stop."""

DESCRIPTION = """\
One fence around every vector database. Register a *vector DB* with a search mode, insert chunks or
documents, and ask: the RAG tool retrieves, fuses and assembles a context within a token budget.

* Every score is in [0, 1] and higher is better, on every backend and in every mode.
* Precedence: request, then registration, then default. Unknown keys are refused.
* Every refusal has the same body; its `error.message` says what to do.
"""

TAGS = [
    {"name": "Vector DBs", "description": "What is registered, and how it is searched."},
    {"name": "Chunks", "description": "Insert and query pieces of text, embedded here or there."},
    {"name": "Documents", "description": "What is stored of them; to be listed and deleted."},
    {"name": "RAG tool", "description": "Documents in, a question in, a budgeted context out."},
    {
        "name": "Vector stores",
        "description": "OpenAI's view of the vector DBs. Also under /v1/openai/v1.",
    },
    {"name": "Files", "description": "Uploaded files, as OpenAI has them."},
    {"name": "Embeddings", "description": "The configured models, by OpenAI's API."},
    {"name": "Agents", "description": "Tools for agents, over MCP and as functions."},
    {"name": "Jobs", "description": "Documents that go in behind the request, and survive it."},
    {"name": "Models", "description": "The re-rankers as a service."},
    {"name": "Qdrant", "description": "Vector DBs in Qdrant's shape, for chat UIs."},
    {"name": "Dify", "description": "Vector DBs as Dify's external knowledge."},
    {"name": "LibreChat", "description": "LibreChat's file service."},
    {"name": "Inspect", "description": "Health, version, providers, models."},
]


def create_app(
    config: RunConfig | None = None,
    home: Path | None = None,
    operator: Principal | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Return the app; its lifespan opens the stack and closes it.

    While it runs, `app.state.stack` is the stack. In process, run it under
    `app.router.lifespan_context(app)`.

    Args:
        config: The configuration; None reads `run.yaml` in the data folder.
        home: The data folder; None takes `$CORRAL_HOME` or `~/.corral`.
        operator: Who sends every request; None: each says it with a key or token, see `Callers`.
        clock: Says the time, in Unix seconds, to what expires.

    Raises:
        ConfigError: The configuration cannot be read. (That it cannot work shows on start.)
    """
    folder = home or data_home()
    settings = config or load_config(home=folder)

    metrics = Metrics() if settings.server.metrics else None
    watchers: list[Watcher] = [metrics] if metrics else []
    app = FastAPI(
        title="Corral",
        version=metadata.version(DISTRIBUTION),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan(settings, folder, operator, clock, watchers),
        openapi_url=None,  # of our own, like the others: every route says who may use it
        docs_url=None,  # of our own, since FastAPI's come from other hosts; see routes.pages
        redoc_url=None,
        redirect_slashes=False,  # a slash may end an id, and a redirect would trust the Host header
    )
    app.state.limits = settings.server.limits
    app.state.readiness = telemetry.Readiness()
    app.state.metrics = metrics
    slots = partial(asyncio.Semaphore, settings.server.limits.max_concurrent_inserts)
    app.state.insert_slots = defaultdict(slots)  # by providers, see InsertRoute
    _add_middleware(app, settings, watchers)
    install(app)
    for router in ROUTERS:
        # include_router would analyze each endpoint again for every app: 0.5 s of every command.
        app.router.routes.extend(router.routes)
    return app


def _lifespan(
    settings: RunConfig,
    folder: Path,
    operator: Principal | None,
    clock: Callable[[], float],
    watchers: list[Watcher],
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return what opens the stack of an app, and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        stack = Stack(settings, folder, clock=clock)
        access = Access.of(settings.server, folder, operator)
        sweep, warmup = Sweep(stack), Warmup(stack)
        try:
            app.state.access = access
            app.state.stack = stack
            app.state.rag_tool = AuditedRagTool(
                stack, limits=settings.server.limits, pipeline=stack.ingestion.pipeline
            )
            with _traced(settings.server.tracing, watchers):
                if operator is None:  # a command works on what it submits, and on nothing else
                    with watched_by(*watchers):
                        await stack.ingestion.start()
                        sweep.start()
                        warmup.start()
                async with mcp.sessions(app):
                    yield
        finally:
            await warmup.close()
            await sweep.close()
            await access.close()
            await stack.close()

    return lifespan


def _add_middleware(app: FastAPI, settings: RunConfig, watchers: Sequence[Watcher]) -> None:
    """Add what surrounds the routes; each one lies around those before it."""
    routes = [r for router in ROUTERS for r in router.routes if isinstance(r, APIRoute)]
    app.add_middleware(RegisteredIds)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Gate, routes=routes)
    app.add_middleware(ApplicationForms, settings=settings.server.librechat)
    app.add_middleware(HostCheck, settings=settings.server)
    app.add_middleware(Envelope, routes=routes, watchers=watchers)


def serve(
    config: RunConfig | None = None,
    home: Path | None = None,
    *,
    workers: int = 1,
    config_file: Path | None = None,
) -> None:
    """Run the server on `config.server.host` and `port` until it is told to stop.

    The access log is ours: a line per request without query string, names or body.

    Args:
        config: The configuration; None reads `config_file`, or `run.yaml` in the data folder.
        home: The data folder.
        workers: Processes that share the port and the data folder.
        config_file: What several processes read, each for itself.

    Raises:
        UnknownProvider, ConfigError: The configuration cannot be read or cannot work, the data
            folder cannot be made, or an engine works in one process only.
        SystemExit: The server cannot start, because the port is taken, say; the log says why.
    """
    folder = home or data_home()
    settings = config or load_config(config_file, folder)
    _make(folder)
    app = create_app(settings, folder)
    asyncio.run(_rehearse(app))
    _spare_the_collector()
    if workers > 1:
        _check_engines(settings)
        os.environ[WORKER_VARIABLE] = _told(settings, folder, config_file)
    with shared(workers):
        uvicorn.run(
            app if workers == 1 else f"{__name__}:worker_app",
            factory=workers > 1,
            workers=workers,
            host=settings.server.host,
            port=settings.server.port,
            access_log=False,
            log_config=log_config(settings.server.log_format),
            server_header=False,
            proxy_headers=False,  # what a proxy says about a client changes nothing
            http="h11",  # httptools, which uvicorn prefers, bounds no headers
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )


def worker_app() -> FastAPI:
    """Return the app of one of several processes of a server; `serve` has told what it needs."""
    told = json.loads(os.environ[WORKER_VARIABLE])
    folder, file = Path(told["home"]), told["config_file"]
    settings = load_config(Path(file) if file else None, folder)
    listening = {"host": told["host"], "port": told["port"]}
    settings.server = settings.server.model_copy(update=listening)
    app = create_app(settings, folder)
    _spare_the_collector()
    return app


def _spare_the_collector() -> None:
    """Keep what lives as long as the server out of garbage collection.

    A full collection visits every object in the event loop's thread, where modules and routes
    alone take 35 ms.
    """
    gc.collect()
    gc.freeze()


def _told(settings: RunConfig, folder: Path, config_file: Path | None) -> str:
    """Return what the processes of a server have to know; no secret, which an environment shows."""
    file = str(config_file.absolute()) if config_file else None
    listening = {"host": settings.server.host, "port": settings.server.port}
    return json.dumps({"home": str(folder.absolute()), "config_file": file, **listening})


def _check_engines(settings: RunConfig) -> None:
    """Refuse several processes where an engine works in one only."""
    for entry in settings.providers.vector_io:
        if not find_spec(Api.VECTOR_IO, entry.provider_type).capabilities.concurrent_processes:
            raise ConfigError(
                f"{entry.provider_id} ({entry.provider_type}) works in one process only.",
                hint="Serve without --workers, or use providers with concurrent_processes "
                "(`corral providers`).",
                field="workers",
            )


async def _rehearse(app: FastAPI) -> None:
    """Start and stop: what is wrong would be a traceback in the log of a server that gives up."""
    async with app.router.lifespan_context(app):
        await app.state.access.callers.check_address()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Cannot make the data folder {folder}: {error.strerror}.",
            hint=f"Name another in {HOME_VARIABLE}.",
        ) from error


@contextmanager
def _traced(settings: TracingSettings | None, watchers: list[Watcher]) -> Iterator[None]:
    """Send traces while the app runs, if it is configured to."""
    if settings is None:
        yield
        return
    try:
        from corral.server.telemetry.traces import Traces  # noqa: PLC0415 - an extra
    except ImportError:
        command = "pip install 'corral-rag[tracing]'"
        raise MissingDependency("server.tracing", "opentelemetry-sdk", command) from None
    traces = Traces(settings)
    watchers.append(traces)
    try:
        yield
    finally:
        watchers.remove(traces)
        traces.close()
