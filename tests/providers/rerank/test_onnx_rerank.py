"""inline::onnx-rerank: a real graph whose scores are computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, NotFound, ProviderError
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.reranker import Reranker
from corral.providers.rerank.onnx.config import OnnxRerankConfig
from corral.providers.rerank.onnx.reranker import create

WORDS = {"[PAD]": 0, "[SEP]": 1, "good": 2, "bad": 3, "why": 4}
WORTH = np.array([[9], [0], [2], [-1], [0.5]], np.float32)
"""What each token adds to the score; padding must add nothing."""


def folder_of(folder: Path, columns: int = 1) -> Path:
    """Write a model that adds up what the tokens of question and text are worth."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = ["batch", "tokens"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    nodes = [
        helper.make_node("Gather", ["worth", "input_ids"], ["each"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["each", "column"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "first"], ["logits"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "sum", inputs,
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", columns])],
        [
            numpy_helper.from_array(np.repeat(WORTH, columns, axis=1), "worth"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "first"),
        ],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "model.onnx")
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[SEP]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 8}))
    return folder


async def load(home: Path, **settings: Any) -> Reranker:
    """Load one model with these settings."""
    given = {"models": [{"model": "ce", **settings}], "threads": 1, "batch_size": 2}
    return await create("local", OnnxRerankConfig.model_validate(given), home).reranker("ce")


def hits(**texts: str) -> list[Hit]:
    """Return a hit for each id and text."""
    return [Hit(Chunk(chunk_id=i, content=t), 0.5, Explanation({})) for i, t in texts.items()]


async def test_it_orders_by_the_models_score(tmp_path: Path) -> None:
    """Sums by hand, through batches of two with padding; sigmoid scores; ties by chunk_id.

    If this fails: padding counts, rows are mixed up, or the question is not read with the text.
    """
    reranker = await load(tmp_path, path=folder_of(tmp_path / "ce"))
    given = hits(d="bad", c="good", b="good good", a="good", e="bad bad")
    found = await reranker.rerank("why", given, 4)
    assert [hit.chunk.chunk_id for hit in found] == ["b", "a", "c", "d"]
    raws = [hit.explanation.rerank["model_score"] for hit in found]
    assert raws == pytest.approx([4.5, 2.5, 2.5, -0.5])
    assert found[0].score == pytest.approx(1 / (1 + math.exp(-4.5)))
    assert found[0].explanation.rerank["score_before"] == 0.5


async def test_a_long_question_leaves_room_for_the_text(tmp_path: Path) -> None:
    """A question takes half of what is read at most, so that the text is never left out."""
    reranker = await load(tmp_path, path=folder_of(tmp_path / "ce"))
    found = await reranker.rerank("why " * 500, hits(a="bad " * 50, b="good " * 50), 2)
    assert [hit.chunk.chunk_id for hit in found] == ["b", "a"]


async def test_numbers_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    """`as_is` promises [0, 1]; a logit there is an error that names the setting."""
    reranker = await load(tmp_path, path=folder_of(tmp_path / "ce"), score="as_is")
    with pytest.raises(ProviderError, match="gave the score") as caught:
        await reranker.rerank("why", hits(a="good"), 1)
    assert "sigmoid" in str(caught.value.hint)


async def test_a_classifier_is_refused(tmp_path: Path) -> None:
    """Two numbers for a text are no score: refused when it is loaded."""
    with pytest.raises(ConfigError, match="gives 2 numbers"):
        await load(tmp_path, path=folder_of(tmp_path / "ce", columns=2))


async def test_missing_files_and_names(tmp_path: Path) -> None:
    """What is missing is named, by health and at the first use; other models are not served."""
    folder = folder_of(tmp_path / "ce")
    (folder / "model.onnx").unlink()
    with pytest.raises(ConfigError, match="has no file"):
        await load(tmp_path, path=folder)
    config = OnnxRerankConfig.model_validate({"models": [{"model": "ce", "path": str(folder)}]})
    provider = create("local", config, tmp_path)
    assert (await provider.health()).status == "Error"
    with pytest.raises(NotFound, match="Known: ce"):
        await provider.reranker("other")
    assert provider.models() == ["ce"]
    await provider.close()


@pytest.mark.parametrize("bad", [{}, {"path": "/x", "score": "cosine"}, {"repository": "a/b"}])
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    """One source, a pinned revision, known values."""
    with pytest.raises(ValidationError):
        OnnxRerankConfig.model_validate({"models": [{"model": "ce", **bad}]})
