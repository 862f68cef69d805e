"""inline::onnx on folders: real weights, pooling and prefixes by hand, clear refusals."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, NotFound
from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create as create_minilm
from corral.providers.embedding.onnx.config import OnnxConfig
from corral.providers.embedding.onnx.embedder import create

from .model_folders import ROWS, minilm_folder, table_folder

TEXTS = ["That is a happy person", "the red barn on the hill " * 30, ""]


async def load(home: Path, **settings: Any) -> LocalEmbedder:
    """Load one model with these settings."""
    config = OnnxConfig.model_validate({"models": [{"model": "mine", **settings}], "threads": 1})
    return await create("onnx", config, home).embedder("mine")


def unit(row: Any) -> Any:
    """Return a row with length 1."""
    return np.asarray(row) / np.linalg.norm(row)


async def test_minilms_weights_give_minilms_embeddings(tmp_path: Path) -> None:
    """The real model through a folder equals inline::minilm, questions and documents.

    If this fails: inputs, masks or the window differ from what the model was trained with.
    """
    mine = await load(tmp_path, path=minilm_folder(tmp_path / "minilm"))
    theirs = await create_minilm("m", MiniLMConfig(threads=1), tmp_path).embedder(
        "all-MiniLM-L6-v2"
    )
    found, expected = await mine.embed_documents(TEXTS), await theirs.embed_documents(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    question = await mine.embed_query(TEXTS[0])
    np.testing.assert_allclose(question, expected[0], atol=1e-5)
    assert (mine.info.dimension, mine.info.max_tokens, mine.window) == (384, 256, 254)
    assert mine.tokenizer is not None
    assert list(mine.tokenizer.token_ends("torchtune!")) == [5, 7, 9, 10]


@pytest.mark.parametrize(
    ("pooling", "row"),
    [
        ("pooling_mode_mean_tokens", ROWS[[1, 2]].mean(axis=0)),
        ("pooling_mode_cls_token", ROWS[1]),
        ("pooling_mode_lasttoken", ROWS[2]),
    ],
)
async def test_pooling_is_the_models_own(tmp_path: Path, pooling: str, row: Any) -> None:
    """Mean, first or last token as the model's configuration says; padding does not count.

    If this fails: every embedding is of another model than the one that was named.
    """
    embedder = await load(tmp_path, path=table_folder(tmp_path / "table", pooling))
    found = await embedder.embed_documents(["red barn", "red barn hill hill"])
    np.testing.assert_allclose(found[0], unit(row), atol=1e-6)


async def test_prefixes_are_the_models_own_unless_configured(tmp_path: Path) -> None:
    """Prompts of the model go before texts; the settings win, "" means none."""
    folder = table_folder(tmp_path / "table")
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    embedder = await load(tmp_path, path=folder)
    question, [text] = await embedder.embed_query("red"), await embedder.embed_documents(["red"])
    np.testing.assert_allclose(question, unit(ROWS[4] + ROWS[1]), atol=1e-6)
    np.testing.assert_allclose(text, unit(ROWS[5] + ROWS[1]), atol=1e-6)
    assert embedder.fingerprint != (await load(tmp_path, path=folder, query_prefix="")).fingerprint
    plain = await load(tmp_path, path=folder, query_prefix="")
    np.testing.assert_allclose(await plain.embed_query("red"), unit(ROWS[1]), atol=1e-6)


async def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """Each file that is needed, by its name, before anything is loaded; health says it, too."""
    for name in ("tokenizer.json", "model.onnx"):
        folder = table_folder(tmp_path / name)
        (folder / name).unlink()
        with pytest.raises(ConfigError, match="has no file") as caught:
            await load(tmp_path, path=folder)
        assert name in str(caught.value)
    config = OnnxConfig.model_validate({"models": [{"model": "mine", "path": str(folder)}]})
    assert (await create("onnx", config, tmp_path).health()).status == "Error"


async def test_without_config_the_dimension_is_asked_for(tmp_path: Path) -> None:
    """Neither configured nor in config.json: refused at the start, naming the setting."""
    folder = table_folder(tmp_path / "table")
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match="dimension"):
        await load(tmp_path, path=folder)


async def test_another_dimension_is_refused(tmp_path: Path) -> None:
    """What the graph gives and what is configured are both named."""
    with pytest.raises(ConfigError, match="gives 3 dimensions, expected 4"):
        await load(tmp_path, path=table_folder(tmp_path / "table"), dimension=4)


async def test_unknown_pooling_is_refused(tmp_path: Path) -> None:
    """A graph of token states without a word on pooling is not guessed at."""
    folder = table_folder(tmp_path / "table", None)
    with pytest.raises(ConfigError, match="Set pooling") as caught:
        await load(tmp_path, path=folder)
    assert caught.value.field == "pooling"
    assert (await load(tmp_path, path=folder, pooling="cls")).info.dimension == 3


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
async def test_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    """A file that is something else than its name says is a configuration error."""
    folder = table_folder(tmp_path / "table")
    (folder / name).write_text("no such thing")
    with pytest.raises(ConfigError):
        await load(tmp_path, path=folder)


async def test_a_digest_that_differs_is_refused(tmp_path: Path) -> None:
    """With `sha256` in the settings another file is not run; both digests are named."""
    folder = table_folder(tmp_path / "table")
    right = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    assert (await load(tmp_path, path=folder, sha256={"model.onnx": right})).info.dimension == 3
    with pytest.raises(ConfigError, match=right):
        await load(tmp_path, path=folder, sha256={"model.onnx": "0" * 64})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"path": "/x", "repository": "a/b"},
        {"repository": "a/b", "dimension": 3},
        {"repository": "a/b", "dimension": 3, "revision": "main"},
        {"repository": "../b", "dimension": 3, "revision": "0" * 40},
        {"path": "relative"},
        {"path": "/x", "pooling": "max"},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    """One source, a pinned commit, known values."""
    with pytest.raises(ValidationError):
        OnnxConfig.model_validate({"models": [{"model": "mine", **settings}]})


async def test_another_name_is_not_served(tmp_path: Path) -> None:
    """The configured models and no other."""
    path = str(table_folder(tmp_path / "t"))
    config = OnnxConfig.model_validate({"models": [{"model": "mine", "path": path}]})
    with pytest.raises(NotFound, match="Known: mine"):
        await create("onnx", config, tmp_path).embedder("other")
