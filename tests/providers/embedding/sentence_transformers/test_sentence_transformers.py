"""inline::sentence-transformers on MiniLM's real weights; clear errors for the rest.

The library brings gigabytes of torch. Where it is missing, a stand-in answers for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, NotFound, Unavailable
from corral.providers.embedding._local.library import LibraryEmbedder
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create as create_minilm
from corral.providers.embedding.sentence_transformers.config import SentenceTransformersConfig
from corral.providers.embedding.sentence_transformers.embedder import create

from .saved_models import library, minilm_folder

TEXTS = ["That is a happy person", "the red barn " * 9, "", "a\ud800b", "猫 sat"]
COMMIT = "0123456789" * 4


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    with library():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM as the library saved it."""
    return minilm_folder(tmp_path_factory.mktemp("models") / "minilm")


async def load(home: Path, *, offline: bool = False, **settings: Any) -> LibraryEmbedder:
    """Load one model with these settings."""
    given = {"models": [{"model": "mine", "dimension": 384, **settings}], "threads": 1}
    config = SentenceTransformersConfig.model_validate({**given, "offline": offline})
    return await create("library", config, home).embedder("mine")


async def test_the_embeddings_are_minilms(folder: Path, tmp_path: Path) -> None:
    """Documents and questions equal those of inline::minilm, in their order; tokens are counted.

    If this fails: batches are mixed up, or prompts, pooling or normalization are left out.
    """
    found = await load(tmp_path, path=folder)
    other = create_minilm("m", MiniLMConfig(threads=1), tmp_path)
    ours = await other.embedder("all-MiniLM-L6-v2")
    rows, expected = await found.embed_documents(TEXTS * 2), await ours.embed_documents(TEXTS * 2)
    assert (rows * expected).sum(axis=1).min() > 0.9999
    for text, row in zip(TEXTS, expected, strict=False):
        assert await found.embed_query(text) @ row > 0.9999
    assert (found.info.dimension, found.info.max_tokens, found.window) == (384, 256, 254)
    assert found.tokenizer is not None
    assert list(found.tokenizer.token_ends("torchtune!")) == [5, 7, 9, 10]
    await other.close()


async def test_questions_and_documents_run_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    """The library sets its tokenizer at each call, so questions and documents have one each.

    The stand-in refuses what the real library has not been seen to fail at.

    If this fails: a question during an ingest may change how its documents are cut.
    """
    found = await load(tmp_path, path=folder)
    alone = await found.embed_query(TEXTS[0])
    asked, _ = await asyncio.gather(
        asyncio.gather(*(found.embed_query(TEXTS[0]) for _ in range(9))),
        found.embed_documents(TEXTS * 5),
    )
    np.testing.assert_allclose(asked, np.tile(alone, (9, 1)), atol=1e-5)


async def test_what_cannot_be_loaded_is_named(folder: Path, tmp_path: Path) -> None:
    """A folder without a file, another dimension, another digest."""
    with pytest.raises(ConfigError, match="gives 384 dimensions, expected 3"):
        await load(tmp_path, path=folder, dimension=3)
    with pytest.raises(ConfigError, match="expected " + "0" * 64) as caught:
        await load(tmp_path, path=folder, sha256={"model.safetensors": "0" * 64})
    assert "elete" not in str(caught.value.hint), "the folder is the operator's"
    for name in ("modules.json", "tokenizer.json", "model.safetensors"):
        path = minilm_folder(tmp_path / name)
        (path / name).unlink()
        with pytest.raises(ConfigError, match=name) as caught:
            await load(tmp_path, path=path)
        assert caught.value.field == "path"


async def test_no_code_of_a_folder_runs(tmp_path: Path) -> None:
    """A module of a class outside the library is refused, and its file is not imported.

    If this fails: who writes a model's folder runs code in the server.
    """
    path = minilm_folder(tmp_path / "minilm")
    modules = json.loads((path / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "", "type": "evil.Module"})
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Module: ...\n")
    with pytest.raises(ConfigError, match="not part of Sentence Transformers"):
        await load(tmp_path, path=path)
    assert not (tmp_path / "ran").exists()


async def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    """Nobody waits for the library's retries; the error says where the files can go."""
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await load(tmp_path, revision=COMMIT)
    assert "models/sentence-transformers" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="offline is set"):
        await load(tmp_path, revision=COMMIT, offline=True)


async def test_the_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    """Another file of settings makes another model; another README does not.

    If this fails: a model is exchanged in its folder, and its embeddings are compared with the old.
    """
    path = minilm_folder(tmp_path / "minilm")
    before = (await load(tmp_path, path=path)).fingerprint
    (path / "README.md").write_text("new")
    assert (await load(tmp_path, path=path)).fingerprint == before
    pooling = json.loads((path / "1_Pooling" / "config.json").read_text())
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=1))
    assert (await load(tmp_path, path=path)).fingerprint != before


async def test_only_what_is_configured_is_served(folder: Path, tmp_path: Path) -> None:
    """Other names are not found; a folder that is gone shows in the health."""
    given: dict[str, Any] = {"model": "mine", "dimension": 384, "path": str(folder)}
    config = SentenceTransformersConfig.model_validate({"models": [given]})
    with pytest.raises(NotFound, match="Known: mine"):
        await create("l", config, tmp_path).embedder("other")
    given["path"] = str(tmp_path / "none")
    gone = SentenceTransformersConfig.model_validate({"models": [given]})
    assert (await create("l", gone, tmp_path).health()).status == "Error"


@pytest.mark.parametrize(
    "models",
    [
        [],
        [{"model": "m", "dimension": 3}],
        [{"model": "m", "dimension": 3, "revision": "main"}],
        [{"model": "m", "dimension": 3, "path": "relative"}],
        [{"model": "m", "dimension": 3, "path": "/m", "revision": COMMIT}],
        [{"model": "m", "dimension": 3, "revision": COMMIT, "sha256": {"f": "0" * 64}}],
        [{"model": "m", "path": "/m"}],
        [{"model": "m", "dimension": 3, "path": "/m"}] * 2,
    ],
)
def test_bad_settings_are_refused(models: list[dict[str, Any]]) -> None:
    """A model has a dimension, a name of its own, and a folder or a commit."""
    with pytest.raises(ValidationError):
        SentenceTransformersConfig.model_validate({"models": models})
