"""The way to run the app: as a server, in one process or several."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import math
import os
from pathlib import Path
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
"""About the most that the headers of a request may take."""

WORKER_VARIABLE = "CORRAL_SERVE"
"""Environment variable by which `serve` tells its processes what they run on."""

GRACE_SECONDS = 10
"""Time for running requests to end after the server is told to stop, unless
`ingestion.wait_seconds` is longer."""


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
        os.environ[WORKER_VARIABLE] = _worker_options(settings, folder, config_file)
    record(settings.server, folder)
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
            http=Connection,  # httptools, which uvicorn prefers, bounds no headers
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            # One second more than the longest wait, so a request that waits for a file is answered.
            timeout_graceful_shutdown=max(
                GRACE_SECONDS, math.ceil(settings.ingestion.wait_seconds) + 1
            ),
        )


def log_config(form: Literal["text", "json"]) -> dict[str, Any]:
    """Return uvicorn's logging with our loggers beside its own."""
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


def _worker_options(settings: RunConfig, folder: Path, config_file: Path | None) -> str:
    """Return the settings of worker processes as JSON; no secret, which an environment shows."""
    file = str(config_file.absolute()) if config_file else None
    listening = {"host": settings.server.host, "port": settings.server.port}
    return json.dumps({"home": str(folder.absolute()), "config_file": file, **listening})


def _check_engines(settings: RunConfig) -> None:
    """Refuse several processes if an engine works in one only."""
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
            f"Cannot create the data folder {folder}: {error.strerror}.",
            hint=f"Set another one in {HOME_VARIABLE}.",
        ) from error
