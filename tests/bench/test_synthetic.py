"""Seeded data has the structure that it claims, and filters pass exactly what they say."""

from __future__ import annotations

import numpy as np
import pytest

from corral.api.errors import InvalidRequest
from corral.api.filters import matches, parse_filter
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import (
    share_limit,
    short_size,
    synthetic_corpus,
)
from corral.bench.data.sources import parse_share, parse_size
from corral.bench.data.synthetic import synthetic_data
from corral.bench.system import Search

DATA = synthetic_data(2000, questions=40, dimension=384)


def test_equal_arguments_give_equal_data() -> None:
    """Data depend on the seed and on nothing else."""
    one, other = (synthetic_data(50, 5, 16, seed=3) for _ in range(2))
    assert (one.texts, one.questions) == (other.texts, other.questions)
    assert np.array_equal(one.embeddings, other.embeddings)
    assert np.array_equal(one.question_embeddings, other.question_embeddings)
    assert synthetic_data(50, 5, 16, seed=4).texts != one.texts


def test_embeddings_have_length_one_and_neighbors() -> None:
    """The mean cosine and that of the nearest chunks are a model's, not those of random points."""
    rows = DATA.embeddings
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    cosines = np.sort(rows[:200] @ rows.T, axis=1)[:, ::-1]
    assert cosines.mean() == pytest.approx(0.14, abs=0.03)
    assert cosines[:, 1].mean() == pytest.approx(0.60, abs=0.08)
    assert cosines[:, 10].mean() == pytest.approx(0.51, abs=0.08)


def test_words_follow_zipf_and_the_subtopic() -> None:
    """The commonest word is in most texts; a text shares most words with its nearest chunk."""
    with_first = np.mean(["w00000" in text.split() for text in DATA.texts])
    assert with_first > 0.9
    words = [set(text.split()) for text in DATA.texts]
    nearest = np.argsort(-(DATA.embeddings[:100] @ DATA.embeddings.T), axis=1)[:, 1]
    near = np.mean([len(words[n] & words[m]) for n, m in enumerate(nearest)])
    far = np.mean([len(words[n] & words[n + 700]) for n in range(100)])
    assert near > 1.5 * far


def test_every_fourth_question_is_of_common_words() -> None:
    """The dearest case for a keyword index is among them, and the others hold rare words."""
    for number, question in enumerate(DATA.questions):
        ranks = [int(word[1:]) for word in question.split()]
        assert len(ranks) == 8
        assert (max(ranks) < 40) == (number % 4 == 3)


@pytest.mark.parametrize("selectivity", [0.01, 0.1, 0.5])
def test_a_filter_passes_exactly_its_share(selectivity: float) -> None:
    """The filter of `Search` on the chunks' metadata and `passing` are the same chunks."""
    corpus = synthetic_corpus(400, dimension=8, questions=2)
    below = share_limit(selectivity)
    parsed = parse_filter(Search(SearchMode.VECTOR, "", corpus.asked[0], 1, below).filters)
    chunks = corpus.chunks()
    passed = [matches(parsed, chunk.metadata) for chunk in chunks]
    assert passed == corpus.passing(selectivity).tolist()
    assert sum(passed) == round(400 * selectivity)
    assert corpus.passing(None).all()
    assert share_limit(None) is None


def test_chunks_are_made_part_by_part() -> None:
    """A worker gets them in batches, from any row on; each has its own id, text and share."""
    corpus = synthetic_corpus(25, dimension=8, questions=3)
    assert [*corpus.chunks(0, 10), *corpus.chunks(10, 22), *corpus.chunks(22)] == corpus.chunks()
    [last] = corpus.chunks(-1)
    assert (last.chunk_id, last.content) == (corpus.chunk_ids[24], corpus.texts[24])
    assert last.metadata["share"] == corpus.shares[24]


def test_sizes_are_written_short() -> None:
    """500, 20k and 1M are read, and written the same way."""
    assert [parse_size(text) for text in ("500", " 20k", "1M", "1m")] == [500, 20_000, 10**6, 10**6]
    assert [short_size(size) for size in (500, 20_000, 10**6, 1_234)] == [
        "500",
        "20k",
        "1M",
        "1234",
    ]
    for wrong in ("", "k", "9", "-20", "1.5k", "many", "²k"):
        with pytest.raises(InvalidRequest, match="is not a size"):
            parse_size(wrong)


def test_shares_are_percentages_or_numbers() -> None:
    """1% is 0.01; nothing, everything beyond, and words are refused."""
    assert [parse_share(text) for text in ("1%", "0.5", " 50 %", "100%")] == [0.01, 0.5, 0.5, 1.0]
    for wrong in ("0%", "101%", "-1%", "some", "", "nan"):
        with pytest.raises(InvalidRequest, match="is not a share"):
            parse_share(wrong)
