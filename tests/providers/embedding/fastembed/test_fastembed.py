"""inline::fastembed on MiniLM's real weights, from a folder; clear errors for the rest."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from pydantic import ValidationError

from corral.api.errors import ConfigError, NotFound, Unavailable
from corral.providers.embedding._local.library import LibraryEmbedder
from corral.providers.embedding.fastembed.config import FastEmbedConfig
from corral.providers.embedding.fastembed.embedder import create
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create as create_minilm

from ..onnx.model_folders import minilm_folder
from ..stand_in_hub import served

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LAST = "encoder.layer.5.output.norm"
TEXTS = ["That is a happy person", "the red barn on the hill " * 30, "", "a\ud800b"]


def token_states(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return MiniLM as it is usually exported: from int64 ids to the states of the tokens."""
    graph = model.graph
    for given in graph.input:
        name = given.name
        for node in graph.node:
            node.input[:] = [f"{name}_32" if each == name else each for each in node.input]
        given.type.tensor_type.elem_type = TensorProto.INT64
        cast = helper.make_node("Cast", [name], [f"{name}_32"], to=TensorProto.INT32)
        graph.node.insert(0, cast)
    del graph.output[:]
    shape: list[str | int | None] = ["batch", "tokens", 384]
    graph.output.append(helper.make_tensor_value_info(LAST, TensorProto.FLOAT, shape))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as fastembed expects it."""
    found = minilm_folder(tmp_path_factory.mktemp("models") / "minilm")
    onnx.save(token_states(onnx.load(found / "onnx" / "model.onnx")), found / "model.onnx")
    words = {"pad_token": "[PAD]", "model_max_length": 256}
    (found / "tokenizer_config.json").write_text(json.dumps(words))
    (found / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    (found / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    return found


async def load(home: Path, *, offline: bool = False, **settings: Any) -> LibraryEmbedder:
    """Load one model with these settings."""
    given = {"models": [{"model": MODEL, "dimension": 384, **settings}], "threads": 1}
    config = FastEmbedConfig.model_validate({**given, "offline": offline})
    provider = create("fast", config, home)
    return await provider.embedder(config.models[0].model)


async def test_the_embeddings_are_minilms(folder: Path, tmp_path: Path) -> None:
    """Documents and questions equal those of inline::minilm, in their order; tokens are counted.

    If this fails: batches are mixed up, or the library reads the model otherwise.
    """
    fast = await load(tmp_path, path=folder)
    other = create_minilm("m", MiniLMConfig(threads=1), tmp_path)
    ours = await other.embedder("all-MiniLM-L6-v2")
    found, expected = await fast.embed_documents(TEXTS * 3), await ours.embed_documents(TEXTS * 3)
    assert (found * expected).sum(axis=1).min() > 0.9999
    question = await fast.embed_query(TEXTS[0])
    np.testing.assert_allclose(question, found[0], atol=1e-5)
    assert (fast.info.dimension, fast.info.max_tokens, fast.window) == (384, 256, 254)
    assert fast.tokenizer is not None
    assert list(fast.tokenizer.token_ends("torchtune!")) == [5, 7, 9, 10]
    await other.close()


async def test_what_cannot_be_loaded_is_named(folder: Path, tmp_path: Path) -> None:
    """An empty folder, another dimension, another digest, a name that fastembed does not list."""
    with pytest.raises(ConfigError, match="cannot load") as caught:
        await load(tmp_path, path=tmp_path)
    assert caught.value.field == "path"
    with pytest.raises(ConfigError, match="gives 384 dimensions, expected 3"):
        await load(tmp_path, path=folder, dimension=3)
    with pytest.raises(ConfigError, match="expected " + "0" * 64):
        await load(tmp_path, path=folder, sha256={"model.onnx": "0" * 64})
    with pytest.raises(ConfigError, match="does not list"):
        await load(tmp_path, model="no/such", path=folder)


async def test_without_a_network_it_fails_at_once(tmp_path: Path) -> None:
    """Nobody waits for the library's retries; the error says where the files can go.

    If this fails: a person without a network waits for most of a minute, or gets a stack trace.
    """
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await load(tmp_path)
    assert time.monotonic() - begun < 30
    assert "models/fastembed" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="offline is set"):
        await load(tmp_path, offline=True)


async def test_the_librarys_own_download(folder: Path, tmp_path: Path) -> None:
    """It fetches MiniLM's files from the hub that it knows, once, and loads them offline then.

    If this fails: a model of fastembed's list works from a folder only, or asks at every start.
    """
    with served(folder, "Qdrant/all-MiniLM-L6-v2-onnx", "0123456789" * 4) as hub:
        fetched = await (await load(tmp_path)).embed_query(TEXTS[0])
        assert sorted(hub.sent).count("model.onnx") == 1
        assert "tokenizer.json" in hub.sent
    again = await (await load(tmp_path, offline=True)).embed_query(TEXTS[0])
    np.testing.assert_array_equal(again, fetched)
    from_folder = await (await load(tmp_path, path=folder)).embed_query(TEXTS[0])
    np.testing.assert_array_equal(from_folder, fetched)


async def test_only_what_is_configured_is_served(folder: Path, tmp_path: Path) -> None:
    """Other names are not found; a folder that is gone shows in the health."""
    given: dict[str, Any] = {"model": MODEL, "dimension": 384, "path": str(folder)}
    provider = create("f", FastEmbedConfig.model_validate({"models": [given]}), tmp_path)
    assert [info.model for info in provider.models()] == [MODEL]
    assert (await provider.health()).status == "OK"
    with pytest.raises(NotFound, match="Known: sentence-transformers"):
        await provider.embedder("other")
    given["path"] = str(tmp_path / "none")
    gone = create("f", FastEmbedConfig.model_validate({"models": [given]}), tmp_path)
    assert (await gone.health()).status == "Error"


@pytest.mark.parametrize(
    "models",
    [
        [],
        [{"model": "m"}],
        [{"model": "m", "dimension": 3, "path": "relative"}],
        [{"model": "m", "dimension": 3, "sha256": {"model.onnx": "0" * 64}}],
        [{"model": "m", "dimension": 3}, {"model": "m", "dimension": 3}],
    ],
)
def test_bad_settings_are_refused(models: list[dict[str, Any]]) -> None:
    """A model has a dimension, an absolute folder and a name of its own."""
    with pytest.raises(ValidationError):
        FastEmbedConfig.model_validate({"models": models})
