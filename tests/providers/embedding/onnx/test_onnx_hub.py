"""Models of a hub: fetched once, checked, offline afterwards; from a stand-in on the loopback."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.errors import ConfigError, Unavailable
from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding.onnx.config import OnnxConfig
from corral.providers.embedding.onnx.embedder import create

from ..stand_in_hub import Hub, served
from .model_folders import ROWS, table_folder

REVISION = "0123456789" * 4


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files that the hub has."""
    return table_folder(tmp_path / "source")


@pytest.fixture
def hub(source: Path) -> Iterator[Hub]:
    """The stand-in."""
    with served(source, "owner/name", REVISION) as started:
        yield started


async def load(home: Path, url: str, **settings: Any) -> LocalEmbedder:
    """Load the hub's model into a data folder."""
    model = {
        "model": "mine", "repository": "owner/name", "revision": REVISION, "hub": url,
        "dimension": 3, "file": "model.onnx", **settings,
    }  # fmt: skip
    config = OnnxConfig.model_validate({"models": [model], "threads": 1})
    return await create("onnx", config, home).embedder("mine")


def kept(home: Path) -> Path:
    """Return the folder of the revision."""
    return home / "models" / "hub" / "owner--name" / REVISION


async def test_it_is_fetched_once_and_offline_afterwards(tmp_path: Path, hub: Hub) -> None:
    """Each file is sent once, its sha256 recorded; without the hub the model loads again.

    If this fails: every start asks the network, or fails without one.
    """
    embedder = await load(tmp_path, hub.url)
    found = await embedder.embed_query("red barn")
    np.testing.assert_allclose(found, [0.5547, 0.83205, 0], atol=1e-4)
    assert len(ROWS[0]) == embedder.info.dimension
    files = ["tokenizer.json", "config.json", "model.onnx", "1_Pooling/config.json"]
    assert sorted(hub.sent) == sorted(files)
    record = json.loads((kept(tmp_path) / "sha256.json").read_text())
    data = (kept(tmp_path) / "model.onnx").read_bytes()
    assert record["model.onnx"] == hashlib.sha256(data).hexdigest()
    hub.close()
    await load(tmp_path, hub.url)
    assert sorted(hub.sent) == sorted(files)


async def test_a_file_that_changed_on_disk_is_refused(tmp_path: Path, hub: Hub) -> None:
    """The recorded digests are checked at each load."""
    await load(tmp_path, hub.url)
    (kept(tmp_path) / "model.onnx").write_bytes(b"other")
    with pytest.raises(ConfigError, match="sha256") as caught:
        await load(tmp_path, hub.url)
    assert str(kept(tmp_path)) in str(caught.value.hint)


async def test_a_digest_that_differs_keeps_nothing(tmp_path: Path, hub: Hub) -> None:
    """What the hub served instead of the configured file is not kept, let alone run."""
    with pytest.raises(ConfigError, match="0000000"):
        await load(tmp_path, hub.url, sha256={"model.onnx": "0" * 64})
    assert not (kept(tmp_path) / "model.onnx").exists()
    assert list(kept(tmp_path).glob("*.tmp")) == []


async def test_a_file_that_the_hub_lacks_is_named(tmp_path: Path, hub: Hub) -> None:
    """404 for a file that is needed: repository, revision and file are in the error."""
    with pytest.raises(ConfigError, match=r"no file 'absent\.onnx'"):
        await load(tmp_path, hub.url, file="absent.onnx")


async def test_a_digest_that_is_configured_later_counts(tmp_path: Path, hub: Hub) -> None:
    """A file that was fetched without a digest is held to the one that the settings name now."""
    await load(tmp_path, hub.url)
    with pytest.raises(ConfigError, match="expected 0000000"):
        await load(tmp_path, hub.url, sha256={"model.onnx": "0" * 64})


async def test_files_that_somebody_puts_there_are_taken(
    tmp_path: Path, source: Path, hub: Hub
) -> None:
    """Without a hub the model loads from the folder that the error names, optional files or not."""
    hub.close()
    for name in ("tokenizer.json", "config.json", "model.onnx"):
        (kept(tmp_path) / name).parent.mkdir(parents=True, exist_ok=True)
        (kept(tmp_path) / name).write_bytes((source / name).read_bytes())
    found = await (await load(tmp_path, hub.url, pooling="mean")).embed_query("red barn")
    assert found.shape == (3,)
    with pytest.raises(ConfigError, match="expected 0000000"):
        await load(tmp_path, hub.url, pooling="mean", sha256={"model.onnx": "0" * 64})


async def test_without_a_network_it_says_what_to_do(tmp_path: Path, hub: Hub) -> None:
    """The error names the folder that would do instead, and comes soon."""
    hub.close()
    with pytest.raises(Unavailable, match="cannot be fetched") as caught:
        await load(tmp_path, hub.url)
    assert str(kept(tmp_path)) in str(caught.value.hint)
