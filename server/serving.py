"""Runs the app as a server, in one process or several."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import math
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI

from corral.api.errors import ConfigError
from corral.api.provider import Api
from corral.providers.base.config import HOME_VARIABLE, RunConfig, data_home, load_config
from corral.providers.stack.registry import find_spec
from corral.server.address import record
from corral.server.app import create_app
from corral.server.connection import Connection
from corral.server.telemetry.logs import JsonFormatter
from corral.server.telemetry.metrics import shared

MAX_HEADER_BYTES = 32 * 1024
"""Approximate maximum size of a request's headers."""

WORKER_SECONDS = 30
"""A worker that does not respond for so long is killed, and another one started. uvicorn's default
of 5 seconds kills workers that load a model on a busy machine, with their requests."""

WORKER_VARIABLE = "CORRAL_SERVE"
"""Environment variable that passes the options of `serve` to its worker processes."""

_LOG = logging.getLogger("corral.server")


def serve(
    config: RunConfig | None = None,
    home: Path | None = None,
    *,
    workers: int = 1,
    config_file: Path | None = None,
) -> None:
    """Run the server on `config.server.host` and `port` until it is told to stop.

    Corral writes the access log: one line per request, without query string, names or body. After
    SIGTERM, the server continues for `server.drain_seconds`, finishes running requests, and
    returns.

    Args:
        config: The configuration; None reads `config_file`, or `run.yaml` in the data folder.
        home: The data folder.
        workers: Number of processes that share the port and the data folder.
        config_file: The configuration file, which each of several processes reads.

    Raises:
        UnknownProvider, ConfigError: The configuration cannot be read or cannot work, the data
            folder cannot be made, or an engine supports only one process.
        SystemExit: The server cannot start, for example because the port is taken; the log has the
            reason.
    """
    folder = home or data_home()
    settings = config or load_config(config_file, folder)
    _make(folder)
    app = _draining(create_app(settings, folder), settings.server.drain_seconds)
    asyncio.run(_rehearse(app))
    _spare_the_collector()
    if workers > 1:
        _check_engines(settings)
        os.environ[WORKER_VARIABLE] = _worker_options(settings, folder, config_file)
    record(settings.server, folder)
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again after it has stopped, which would end the process.
        signal.signal(signal.SIGTERM, lambda *_: None)
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
            proxy_headers=False,  # proxy headers about a client are ignored
            http=Connection,  # httptools, uvicorn's default, does not limit headers
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_worker_healthcheck=WORKER_SECONDS,
            # One second more than the longest wait, so that a request waiting for a file is
            # answered.
            timeout_graceful_shutdown=max(
                settings.server.grace_seconds, math.ceil(settings.ingestion.wait_seconds) + 1
            ),
        )


def log_config(form: Literal["text", "json"]) -> dict[str, Any]:
    """Return uvicorn's logging configuration with Corral's loggers added."""
    config: dict[str, Any] = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["loggers"]["corral"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if form == "json":
        ours = {"()": f"{JsonFormatter.__module__}.{JsonFormatter.__qualname__}"}
        config["formatters"] = dict.fromkeys(config["formatters"], ours)
        config["root"] = {"handlers": ["default"]}
    return config


def worker_app() -> FastAPI:
    """Return the app of one of several processes of a server, with the options of `serve`."""
    options = json.loads(os.environ[WORKER_VARIABLE])
    folder, file = Path(options["home"]), options["config_file"]
    settings = load_config(Path(file) if file else None, folder)
    listening = {"host": options["host"], "port": options["port"]}
    settings.server = settings.server.model_copy(update=listening)
    app = _draining(create_app(settings, folder), settings.server.drain_seconds)
    _spare_the_collector()
    return app


def _draining(app: FastAPI, seconds: float) -> FastAPI:
    """Wrap the app so that the server stops `seconds` after SIGTERM, or at a second SIGTERM."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with inner(app):
            with _late_stop(app, seconds):
                yield

    app.router.lifespan_context = lifespan
    return app


@contextmanager
def _late_stop(app: FastAPI, seconds: float) -> Iterator[None]:
    """Delay the SIGTERM handler; until then, `app.state.draining` is True."""
    stop = signal.getsignal(signal.SIGTERM)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not callable(stop) or not in_main_thread:  # no server runs this app
        yield
        return
    loop = asyncio.get_running_loop()

    def begin(number: int, frame: FrameType | None) -> None:
        if app.state.draining:
            stop(number, frame)
            return
        app.state.draining = True
        _LOG.info("Not ready from now on; stopping in %g s", seconds)
        loop.call_soon_threadsafe(loop.call_later, seconds, stop, number, None)

    signal.signal(signal.SIGTERM, begin)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, stop)


def _spare_the_collector() -> None:
    """Exclude permanent objects from garbage collection.

    A full collection blocks the event loop; modules and routes alone take 35 ms.
    """
    gc.collect()
    gc.freeze()


def _worker_options(settings: RunConfig, folder: Path, config_file: Path | None) -> str:
    """Return the settings of worker processes as JSON; no secrets, as environments are visible."""
    file = str(config_file.absolute()) if config_file else None
    listening = {"host": settings.server.host, "port": settings.server.port}
    return json.dumps({"home": str(folder.absolute()), "config_file": file, **listening})


def _check_engines(settings: RunConfig) -> None:
    """Refuse several processes if an engine supports only one."""
    for entry in settings.providers.vector_io:
        if not find_spec(Api.VECTOR_IO, entry.provider_type).capabilities.concurrent_processes:
            raise ConfigError(
                f"{entry.provider_id} ({entry.provider_type}) works in one process only.",
                hint="Serve without --workers, or use providers with concurrent_processes "
                "(`corral providers`).",
                field="workers",
            )


async def _rehearse(app: FastAPI) -> None:
    """Start and stop the app once, so that errors appear here and not as tracebacks of workers."""
    async with app.router.lifespan_context(app):
        await app.state.access.callers.check_address()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Cannot create the data folder {folder}: {error.strerror}.",
            hint=f"Set another one in {HOME_VARIABLE}.",
        ) from error
