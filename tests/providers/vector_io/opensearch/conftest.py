"""The OpenSearch server that the tests of remote::opensearch share."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator

import pytest

from corral.providers.vector_io.opensearch.config import OpenSearchConfig

from ..real_server import folder_in_memory, started
from .real_server import MISSING, OpenSearchServer

CONFIG = "CORRAL_TEST_OPENSEARCH_CONFIG"
"""Where the second processes of the conformance suite find the provider's settings."""


@pytest.fixture(scope="session")
def shared_server() -> Iterator[None]:
    """Run a server for all tests; other processes that a test starts find it by the environment."""
    prefix = {"index_prefix": f"t{uuid.uuid4().hex[:8]}-"}
    with pytest.MonkeyPatch.context() as patch:
        if url := OpenSearchServer.running():
            patch.setenv(CONFIG, json.dumps({"url": url} | OpenSearchServer.settings() | prefix))
            yield
        elif OpenSearchServer.found():
            with started(OpenSearchServer) as own:
                patch.setenv(CONFIG, json.dumps(own.config | prefix))
                yield
        else:
            pytest.skip(MISSING)


@pytest.fixture
def config(shared_server: None) -> OpenSearchConfig:
    """Return the settings of the shared server."""
    settings = json.loads(os.environ[CONFIG]) | {"timeout_seconds": 30}
    return OpenSearchConfig.model_validate(settings)


@pytest.fixture
def own_server() -> Iterator[OpenSearchServer]:
    """A server of the test's own, not started yet."""
    if not OpenSearchServer.found():
        pytest.skip(MISSING)
    with folder_in_memory() as folder:
        server = OpenSearchServer(folder)
        yield server
        server.kill()
