"""What holds for every test."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx._transports.default
import pytest
from hypothesis import settings

from corral.api.testing.matrix import standard_groups

from . import state_database
from .bench.report.headless import Browser, find_browser
from .providers.conftest import url_of
from .providers.vector_io.pgvector.conftest import postgresql

# A single example takes 0.2 s, the library's own bound, where the machine is busy.
# The same examples each time: a change made red what is red. CONTRIBUTING says how to try others.
settings.register_profile("corral", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=2_000)
settings.load_profile("corral")

# A shell that runs the tests in the background ignores Ctrl-C for them, and what they start would
# inherit that; tests that interrupt a process need it to listen.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Engines wait for the disk at each write, and a vector DB of Qdrant Edge takes 0.6 s to make on a
# busy one and 0.02 s in memory. What is killed here is a process and never the machine.
MEMORY = "/dev/shm"
ENOUGH_MEMORY_BYTES = 4 * 2**30
if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY_BYTES
):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# The hub of the libraries that fetch models: a port of this process, at which only a test listens.
with socket.create_server(("127.0.0.1", 0)) as free:
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{free.getsockname()[1]}"

# Each client of HTTP loads all certificates, which takes 24 ms; some drivers make one in each test.
certificates = functools.cache(httpx.create_ssl_context)
httpx._transports.default.create_ssl_context = certificates  # type: ignore[attr-defined]

# What is imported and collected stays; looking through it for garbage finds none.
gc.disable()

# Engines have to be there. The browser comes from npm's registry, which a machine may not reach.
MAY_BE_MISSING = "no Chromium"

# `make test` begins with these: the longest, and between them what mostly waits, for servers that
# are frozen or killed, say. The others keep the cores busy meanwhile; at the end they would idle.
# Then come files of a few long tests, which would be last, and one core idle while they end.
FIRST = (
    "test_backend_down.py",
    "test_milvus_conformance.py",
    "test_chroma_conformance.py",
    "test_qdrant_server_conformance.py",
    "test_weaviate_conformance.py",
    "test_opensearch_conformance.py",
    "test_opensearch_faults.py",
    "test_opensearch_cluster.py",
    "test_faiss_conformance.py",
    "test_frameworks.py",
    "test_sqlite_conformance.py",
    "test_schema.py",
    "test_kills.py",
    "test_faiss.py",
    "test_chroma_faults.py",
    "test_cli_conformance.py",
    "test_pgvector_faults.py",
    "test_qdrant_edge_conformance.py",
    "test_milvus_faults.py",
    "test_pgvector_conformance.py",
    "test_weaviate_failing.py",
    "test_provider_dict.py",
    "test_jobs.py",
    "test_restart.py",
    "test_console.py",
    "test_console_asking.py",
    "test_connections.py",
    "test_local_chat.py",
    "test_cli_orphans.py",
    "test_e5_reads.py",
    "test_answering_clients.py",
    "test_types_of_users.py",
    "test_other_clients.py",
    "test_agents.py",
    "test_core_install.py",
    "test_readme_clients.py",
)

# It kills the second process of its suite, which others would share; what follows starts another.
LAST_OF_ITS_SUITE = "test_a_killed_writer_leaves_whole_calls_only"

GROUPS = standard_groups()

FAIL_ON_SKIP = bool(os.environ.get("CORRAL_FAIL_ON_SKIP"))


SERVERS = {"qdrant": "qdrant", "weaviate": "weaviate-server"}
"""Programs of the servers that have a stand-in; see providers/vector_io/real_server.py."""


def pytest_report_header() -> list[str]:
    """Return the servers on which the remote providers are tested."""
    lines = []
    for name, program in SERVERS.items():
        variable = f"CORRAL_TEST_{name.upper()}"
        words = os.environ.get(variable, "").split()
        named = " ".join(word for word in words if not word.startswith("api_key="))
        found = shutil.which(program)
        server = named if "://" in named else found and f"{found} {named}".strip()
        lines.append(f"{name}: {server or f'a stand-in; no {variable}, no {program} on PATH'}")
    home = Path(sys.prefix) / "opensearch"
    own = home if home.is_dir() else "none; run `make .venv/.opensearch` where Java and Maven are"
    given = os.environ.get("CORRAL_TEST_OPENSEARCH", "").split()[:1]
    jar = Path(sys.prefix) / "tika"
    tika = str(jar) if jar.is_dir() else "none; run `make .venv/.tika` where Java and Maven are"
    lines.append(f"opensearch: {given[0] if given else own}")
    return [*lines, f"tika: {os.environ.get('CORRAL_TEST_TIKA', tika)}"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run a process for each of up to four cores, and one more: a tenth of all time is waiting.

    For servers that are frozen, say. Still more would only start more servers.
    """
    return min(os.cpu_count() or 1, 4) + 1


def is_twins(item: pytest.Item) -> bool:
    """Return True if a conformance test runs on the suite's twin too, over the same code of ours.

    A suite names its twin and the groups in which both run the same lines and branches.
    """
    shared = getattr(getattr(item, "cls", None), "same_as", None)
    if shared is None:
        return False
    twin, groups = shared
    name = getattr(item, "originalname", item.name)
    return any(name in GROUPS[group] for group in groups) and bool(twin.chosen[name])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a twin runs, unless the conformance is reported; order files, not tests.

    Tests about SQLite are left out if the states are in PostgreSQL. One test goes to the end of its
    suite.
    """
    if config.getoption("conformance_report", None) is None:
        left_out = [item for item in items if is_twins(item)]
        items[:] = [item for item in items if not is_twins(item)]
        config.hook.pytest_deselected(items=left_out)
    if state_database.wanted():
        left_out = [item for item in items if item.get_closest_marker("sqlite_state")]
        items[:] = [item for item in items if not item.get_closest_marker("sqlite_state")]
        config.hook.pytest_deselected(items=left_out)
    if not hasattr(config, "workerinput"):
        return
    tests = Counter(item.path for item in items)
    suites = {item.parent: place for place, item in reversed(list(enumerate(items)))}

    def place(item: pytest.Item) -> tuple[int, int, str, int, bool]:
        first = FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)
        last = item.name == LAST_OF_ITS_SUITE
        return first, -tests[item.path], str(item.path), suites[item.parent], last

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Keep what all tests share out of garbage collection.

    A tenth of the processor's time went into visiting it again and again, 0.1 s at a time, which
    looked like a blocked event loop to tests that watch one.
    """
    gc.freeze()  # garbage of imports included, which takes half a second to find
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything is installed, as in CI."""
    report = yield
    if (
        FAIL_ON_SKIP
        and report.skipped
        and not hasattr(report, "wasxfail")
        and MAY_BE_MISSING not in str(report.longrepr)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutine tests on asyncio, the only event loop that Corral supports."""
    return "asyncio"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a headless browser; `make test` installs one."""
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium: run `make test`, which installs one with npm")
    with Browser(binary) as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def _state_server() -> Iterator[None]:
    """Run the server of all states, and a remote engine, if `CORRAL_TEST_STATE` says so."""
    if not state_database.wanted():
        yield
        return
    with ExitStack() as stack:
        server, engine = stack.enter_context(postgresql()), None
        if state_database.is_shared():
            engine = stack.enter_context(_engine())
        state_database.start(url_of(server), engine)
        yield


def _engine() -> AbstractContextManager[dict[str, Any]]:
    """Lend the settings of a remote engine whose writes need the write-ahead log."""
    # Qdrant's client takes a second to import.
    from .providers.vector_io.qdrant.conftest import stand_in
    from .providers.vector_io.qdrant.real_server import QdrantServer
    from .providers.vector_io.real_server import running

    os.environ["NO_PROXY"] = "127.0.0.1"
    return running(QdrantServer, stand_in)


@pytest.fixture(autouse=True)
def _state_databases(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the databases of a test's folder at its end."""
    if state_database.wanted() and "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
        yield
        state_database.drop(folder)
    else:
        yield
