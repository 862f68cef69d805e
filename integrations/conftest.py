"""Corral for the suites of the frameworks: a server on a free port, and one in this process."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from corral_client import CorralClient

from corral.providers.base.config import RunConfig
from corral.server.app import create_app

os.environ["OPENBLAS_NUM_THREADS"] = "1"

gc.disable()  # what the frameworks import stays: looking through it for garbage finds none

CONFIG = RunConfig.model_validate(
    {
        "providers": {
            "embedding": [
                {
                    "provider_id": "hashing",
                    "provider_type": "inline::hashing",
                    "config": {"dimension": 256},
                },
                {"provider_id": "external", "provider_type": "inline::external"},
            ],
        },
        "default_embedding_model": "hashing",
    }
)


def pytest_collection_finish() -> None:
    """Keep what is imported out of garbage collection, which goes on."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a server on a free port of 127.0.0.1."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each body is 40 ms late
    app = create_app(CONFIG, Path(tmp_path_factory.mktemp("server")))
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    while not running.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join(timeout=30)
    listening.close()


@pytest.fixture(scope="session", params=["http", "in_process"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CorralClient]:
    """Yield a client over HTTP, then one of Corral in this process."""
    if request.param == "http":
        with CorralClient(request.getfixturevalue("server")) as over_http:
            yield over_http
    else:
        home = tmp_path_factory.mktemp("home")
        with CorralClient(home=home, config=CONFIG) as in_process:
            yield in_process


@pytest.fixture
def vector_db_id() -> str:
    """Return the id of a vector DB that no other test has."""
    return f"db-{uuid.uuid4()}"
