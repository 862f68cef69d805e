"""Runs a command with every engine of the tests up: PostgreSQL, Chroma and Milvus Lite.

    python tests/with_engines.py corral bench quality --config {config} --backends {backends} ...

`{config}` becomes a run.yaml with every provider that runs here, the three servers among them, and
`{backends}` their names. The servers are on free ports of 127.0.0.1, in a folder that is removed,
and end with the command. This is how the README's tables over all backends are made.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

HERE = Path(__file__).parent / "providers" / "vector_io"
INLINE = ("memory", "sqlite", "faiss", "chroma", "qdrant", "milvus")


def conftest(name: str) -> ModuleType:
    """Return the module that knows how a backend's server is started."""
    spec = importlib.util.spec_from_file_location(f"{name}_server", HERE / name / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Run the servers; yield the settings of their providers by type."""
    with conftest("pgvector").postgresql() as postgresql:
        chroma = conftest("chroma").Server(folder / "chroma")
        milvus = conftest("milvus").Server(folder / "milvus")
        try:
            chroma.start()
            milvus.start()
            yield {
                "remote::pgvector": postgresql.config,
                "remote::chroma": {"url": chroma.url},
                "remote::milvus": {"uri": milvus.uri},
            }
        finally:
            chroma.kill()
            milvus.kill()


def run_yaml(remote: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration with the inline providers and these."""
    entries: list[dict[str, Any]] = [
        {"provider_id": name, "provider_type": f"inline::{name}"} for name in INLINE
    ]
    for kind, config in remote.items():
        name = kind.removeprefix("remote::")
        provider_id = f"{name}-remote" if name in INLINE else name
        entries.append({"provider_id": provider_id, "provider_type": kind, "config": config})
    return {"providers": {"vector_io": entries}}


def main(command: list[str]) -> int:
    """Run the command and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="corral-engines-") as name:
        folder = Path(name)
        with servers(folder) as remote:
            settings = run_yaml(remote)
            config = folder / "run.yaml"
            config.write_text(yaml.safe_dump(settings))
            names = [entry["provider_id"] for entry in settings["providers"]["vector_io"]]
            places = {"{config}": str(config), "{backends}": ",".join(names)}
            full = [places.get(part, part) for part in command]
            return subprocess.run(full, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
