"""Runs a command with every engine of the tests up: PostgreSQL, Chroma, Milvus Lite and others.

    python tests/with_engines.py corral bench quality --config {config} --backends {backends} ...

`{config}` becomes a run.yaml with every provider that runs here, the three servers among them, and
`{backends}` their names. Where the programs `qdrant` and `weaviate-server` are on PATH they are
started, too, as `qdrant-remote` and `weaviate-remote`, and after `make .venv/.opensearch` also
`opensearch-remote`. `{stand-ins}` are `qdrant-stand-in` and
`weaviate-stand-in`: their providers with the services of their tests in place of a server. What
those answer is the provider's work and comparable; how fast they are says nothing.

The servers are on free ports of 127.0.0.1, in a folder that is removed, and end with the command.
This is how the README's tables over all backends are made.
"""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

INLINE = ("memory", "sqlite", "faiss", "chroma", "qdrant", "milvus")

Providers = dict[str, tuple[str, dict[str, Any]]]
"""Provider types and settings by provider id."""


def module(name: str) -> ModuleType:
    """Return a module of the tests of the backends; this folder is on the path of a script."""
    return importlib.import_module(f"providers.vector_io.{name}")


@contextmanager
def servers(folder: Path) -> Iterator[Providers]:
    """Run the servers; yield their providers."""
    with ExitStack() as running:
        postgresql = running.enter_context(module("pgvector.conftest").postgresql())
        chroma = module("chroma.conftest").Server(folder / "chroma")
        milvus = module("milvus.conftest").Server(folder / "milvus")
        for server in (chroma, milvus):
            running.callback(server.kill)
            server.start()
        yield {
            "pgvector": ("remote::pgvector", postgresql.config),
            "chroma-remote": ("remote::chroma", {"url": chroma.url}),
            "milvus-remote": ("remote::milvus", {"uri": milvus.uri}),
        }


@contextmanager
def programs() -> Iterator[Providers]:
    """Run the servers whose programs are on PATH; yield their providers."""
    found: Providers = {}
    with ExitStack() as running:
        for name, kind in (
            ("opensearch", "OpenSearchServer"),
            ("qdrant", "QdrantServer"),
            ("weaviate", "WeaviateServer"),
        ):
            server = getattr(module(f"{name}.real_server"), kind)
            if server.found():
                own = running.enter_context(module("real_server").started(server))
                found[f"{name}-remote"] = (f"remote::{name}", own.config)
        yield found


@contextmanager
def stand_ins() -> Iterator[Providers]:
    """Run the stand-ins; yield their providers."""
    with module("qdrant.qdrant_service").running_service() as qdrant:
        weaviate = module("weaviate.stand_in").StandIn()
        try:
            address = {
                "url": f"http://127.0.0.1:{weaviate.http_port}",
                "grpc_port": weaviate.grpc_port,
            }
            yield {
                "qdrant-stand-in": ("remote::qdrant", {"url": qdrant.url}),
                "weaviate-stand-in": ("remote::weaviate", address),
            }
        finally:
            weaviate.stop()


def direct(providers: Providers) -> str:
    """Return the names by which `corral bench` uses the programs' servers without Corral."""
    names = []
    if "qdrant-remote" in providers:
        names.append(f"qdrant-direct={providers['qdrant-remote'][1]['url']}")
    if "weaviate-remote" in providers:
        config = providers["weaviate-remote"][1]
        names.append(f"weaviate-direct={config['url']}#{config['grpc_port']}")
    if "opensearch-remote" in providers:
        names.append(f"opensearch-direct={providers['opensearch-remote'][1]['url']}")
    return ",".join(names)


def run_yaml(providers: Providers) -> str:
    """Return the configuration."""
    entries = [
        {"provider_id": name, "provider_type": kind, "config": config}
        for name, (kind, config) in providers.items()
    ]
    return yaml.safe_dump({"providers": {"vector_io": entries}})


def main(command: list[str]) -> int:
    """Run the command and return its exit code."""
    # Left to itself, the signal would end this process and leave its servers running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="corral-engines-")))
        here: Providers = {name: (f"inline::{name}", {}) for name in INLINE}
        here |= running.enter_context(servers(folder)) | running.enter_context(programs())
        standing_in = (
            running.enter_context(stand_ins()) if "{stand-ins}" in "".join(command) else {}
        )
        config = folder / "run.yaml"
        config.write_text(run_yaml(here | standing_in))
        places = {
            "{config}": str(config),
            "{backends}": ",".join(here),
            "{stand-ins}": ",".join(standing_in),
            "{direct}": direct(here),
        }
        for place, value in places.items():
            command = [part.replace(place, value) for part in command]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
