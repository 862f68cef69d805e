"""all-MiniLM-L6-v2 on the real weights: the right numbers, in order, under all conditions."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.providers.embedding._local.batches import TOKENS_PER_BATCH, batches
from corral.providers.embedding._local.embedder import TEXTS_PER_WINDOW, LocalEmbedder
from corral.providers.embedding.minilm.weights import model_folder, read_weights

from .reference_bert import reference_embedding

SENTENCES = [
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
]


async def embed(embedder: LocalEmbedder, texts: list[str]) -> NDArray[np.float32]:
    """Return the embeddings of documents."""
    return await embedder.embed_documents(texts)


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of each row of a with the same row of b; both have norm 1."""
    products: NDArray[np.float32] = (a * b).sum(axis=1)
    return products


# --- the numbers -------------------------------------------------------------------------------


async def test_known_similarities(embedder: LocalEmbedder) -> None:
    """The similarities of the model's well-known example sentences come out to three digits.

    If this fails: the graph computes another model; compare it with the numpy witness.
    """
    result = await embed(embedder, SENTENCES)
    np.testing.assert_allclose(result[0] @ result[1:].T, [0.695, 0.943, 0.257], atol=0.001)


@pytest.mark.parametrize("text", ["", SENTENCES[0], "Vaccines lower the risk. " * 20])
async def test_graph_agrees_with_the_witness(embedder: LocalEmbedder, text: str) -> None:
    """The graph equals the model written out in numpy with double precision, to six digits."""
    weights = read_weights(model_folder(None))
    expected = reference_embedding(weights, embedder._model.tokenize([text])[0])
    np.testing.assert_allclose((await embed(embedder, [text]))[0], expected, atol=2e-6)


def test_token_ids_are_the_models(embedder: LocalEmbedder) -> None:
    """Texts become the ids of BERT's vocabulary, lowercased, with both marks, at most 256."""
    short, long = embedder._model.tokenize(["Hello WORLD", "hello " * 10_000])
    assert short == [101, 7592, 2088, 102]
    assert len(long) == 256
    assert set(long[1:-1]) == {7592}


async def test_questions_and_documents_are_embedded_alike(embedder: LocalEmbedder) -> None:
    """A question has shape (384,), float32, and the embedding of the same document."""
    found = await embedder.embed_query(SENTENCES[0])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (await embed(embedder, SENTENCES[:1]))[0], atol=1e-6)


# --- order and batches ---------------------------------------------------------------------


async def test_mixed_lengths_equal_one_by_one(embedder: LocalEmbedder) -> None:
    """Padding, sorting, batches and windows change nothing: row i is text i's own embedding.

    If this fails: the attention mask lets padding in, or rows are put back in a wrong place.
    """
    rng = np.random.default_rng(3)
    words = np.array(
        ["river", "bank", "loan", "interest", "rate", "flood", "water", "money", "fish", "boat"]
    )
    sizes = [*rng.integers(0, 120, 20), *rng.integers(0, 4, TEXTS_PER_WINDOW)]
    texts = [" ".join(rng.choice(words, size)) for size in rng.permutation(sizes)]
    together = await embed(embedder, texts)
    sample = [*rng.integers(0, TEXTS_PER_WINDOW, 20), *range(TEXTS_PER_WINDOW - 4, len(texts))]
    alone = np.vstack([await embedder.embed_query(texts[place]) for place in sample])
    assert cosines(together[sample], alone).min() > 0.99999


async def test_no_texts(embedder: LocalEmbedder) -> None:
    """An empty list gives shape (0, 384)."""
    assert (await embed(embedder, [])).shape == (0, 384)


def test_batches_are_bounded_and_complete() -> None:
    """Each text is in one batch; a batch times its longest keeps the bound; lengths are similar."""
    lengths = [int(n) for n in np.random.default_rng(5).integers(2, 257, 500)]
    found = list(batches(lengths))
    assert sorted(i for batch in found for i in batch) == list(range(500))
    for batch in found:
        assert len(batch) * max(lengths[i] for i in batch) <= TOKENS_PER_BATCH
    longest = [max(lengths[i] for i in batch) for batch in found]
    shortest = [min(lengths[i] for i in batch) for batch in found]
    assert all(a <= b for a, b in zip(longest, shortest[1:], strict=False))
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in found)
    assert padded < 1.1 * sum(lengths)


@pytest.mark.parametrize("count", [1, 3, 64])
def test_padding_takes_less_than_the_texts(count: int) -> None:
    """Few texts of unequal lengths are computed apart, so that each takes about its own tokens.

    If this fails: many small documents take twice the time, since short texts are padded to long.
    """
    rng = np.random.default_rng(6)
    texts = padded = 0
    for _ in range(192 // count):
        lengths = [int(n) for n in rng.lognormal(4.3, 0.9, count).clip(6, 256)]
        texts += sum(lengths)
        padded += sum(len(b) * max(lengths[i] for i in b) for b in batches(lengths))
    assert padded < 1.1 * texts
    assert list(batches([200, 12, 13])) == [[1, 2], [0]]


def test_a_text_beyond_the_bound_is_a_batch_of_its_own() -> None:
    """A text longer than a batch may be is not lost, and no texts give no batch."""
    assert list(batches([TOKENS_PER_BATCH + 1, 2])) == [[1], [0]]
    assert list(batches([])) == []


# --- odd texts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\0", "\u200b", "\ud800", "😀", "中文", "ไทย", "é" * 300, "a" * 5000]
)
async def test_every_text_has_a_unit_embedding(embedder: LocalEmbedder, text: str) -> None:
    """No text is refused, and every embedding is finite with norm 1."""
    for found in ((await embed(embedder, [text]))[0], await embedder.embed_query(text)):
        assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)


async def test_long_text_is_read_up_to_the_limit(embedder: LocalEmbedder) -> None:
    """Of 10,000 words the first 254 tokens count, and what follows does not."""
    long, cut = await embed(embedder, ["water " * 10_000, "water " * 254 + "money " * 500])
    np.testing.assert_allclose(long, cut, atol=1e-6)
    assert long @ (await embed(embedder, ["water " * 100]))[0] < 0.9999


async def test_invisible_characters_do_not_count(embedder: LocalEmbedder) -> None:
    """Control and zero-width characters, with which texts can be disguised, change nothing."""
    plain, disguised = await embed(embedder, ["free money", "fr\u200bee\0 mo\u2060ney\u0007"])
    np.testing.assert_allclose(plain, disguised, atol=1e-6)


# --- many at once ----------------------------------------------------------------------------


async def test_many_tasks_at_once(embedder: LocalEmbedder) -> None:
    """Questions and ingests from many tasks each get their own rows."""

    texts = [f"{sentence} number {i}" for i in range(10) for sentence in SENTENCES]
    expected = await embedder.embed_documents(texts)
    ingests = [embedder.embed_documents(texts[i:] + texts[:i]) for i in range(4)]
    questions = [embedder.embed_query(text) for text in texts]
    rows = await asyncio.gather(*questions)
    assert cosines(np.vstack(rows), expected).min() > 0.99999
    for i, result in enumerate(await asyncio.gather(*ingests)):
        assert cosines(result, np.roll(expected, -i, axis=0)).min() > 0.99999


async def test_the_event_loop_runs_on(embedder: LocalEmbedder) -> None:
    """During an ingest of many batches other tasks get their turn.

    If this fails: the model runs on the event loop, and the whole server stands still.
    """

    ingest = asyncio.create_task(embedder.embed_documents(["water " * 300] * 40))
    turns = 0
    while not ingest.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20


async def test_a_question_waits_for_no_document(embedder: LocalEmbedder) -> None:
    """A question is answered while a batch of documents is still at work."""
    batch_ends = threading.Event()
    batch = embedder._documents.submit(batch_ends.wait, 100)
    try:
        await asyncio.wait_for(embedder.embed_query(SENTENCES[0]), 60)
        assert not batch.done()
    finally:
        batch_ends.set()


async def test_a_small_ingest_passes_a_large_one(embedder: LocalEmbedder) -> None:
    """Batches of several ingests take turns: one of a single text ends first."""

    large = asyncio.create_task(embedder.embed_documents(["water " * 300] * 80))
    await asyncio.sleep(0.02)
    await embedder.embed_documents(SENTENCES[:1])
    assert not large.done()
    large.cancel()
