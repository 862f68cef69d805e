"""The loop that asks an engine for more until nothing that is missing can be better."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.providers.vector_io.kit.candidates import (
    GROWTH,
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
    nearest_of,
    open_order,
    score_vectors,
    settled,
    unsettled,
)

from ..registrations import registration

QUERY = np.array([1, 0], dtype=np.float32)


class Engine:
    """Proposes rows in the order of rough scores, and scores them exactly.

    Args:
        exact: The exact score by chunk_id.
        error: The most by which a rough score may be off.
    """

    def __init__(self, exact: dict[str, float], error: float = 0.0) -> None:
        rng = np.random.default_rng(1)
        rough = {name: score + rng.uniform(-error, error) for name, score in exact.items()}
        self.order = sorted(exact, key=lambda name: -rough[name])
        self.rough, self.exact, self.error = rough, exact, error
        self.limits: list[int] = []

    async def propose(self, limit: int) -> Proposals:
        self.limits.append(limit)
        names = self.order[:limit]
        candidates = [Candidate(name, self.exact[name]) for name in names]
        return Proposals(
            candidates, self.rough[names[-1]] + self.error if len(names) == limit else None
        )


def names(candidates: list[Candidate]) -> list[str]:
    """Return their ids, in order."""
    return [one.chunk_id for one in candidates]


async def test_ties_beyond_the_margin_are_all_asked_for() -> None:
    """Of 50 equal scores, proposed in falling order of ids, the first ids are the answer.

    If this fails: an engine's order within ties, which is chance, decides what is cut off.
    """
    engine = Engine({f"c{number:02}": 1.0 for number in reversed(range(50))})
    found = await best_candidates(3, engine.propose, margin=2)
    assert names(found) == ["c00", "c01", "c02"]
    assert engine.limits == [5, 5 * GROWTH, 5 * GROWTH**2]


async def test_one_request_is_enough_where_the_scores_lie_apart() -> None:
    """What follows the margin scores lower than the k-th: nothing more is asked for."""
    engine = Engine({f"c{number:02}": -float(number) for number in range(50)})
    assert names(await best_candidates(3, engine.propose, margin=2)) == ["c00", "c01", "c02"]
    assert engine.limits == [5]


@pytest.mark.parametrize("k", [1, 10, 300])
async def test_rough_scores_lose_nothing(k: int) -> None:
    """With errors as large as the scores' spread the answer is that of all exact scores."""
    rng = np.random.default_rng(2)
    exact = {f"c{number:03}": float(rng.normal()) for number in range(200)}
    engine = Engine(exact, error=1.0)
    found = await best_candidates(k, engine.propose, margin=1)
    expected = sorted(exact.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
    assert [(one.chunk_id, one.raw_score) for one in found] == expected


async def test_a_source_that_cannot_add_anything_is_not_asked_again() -> None:
    """Two sources: one ends at once, the other holds ties and is asked until they end."""
    apart = Engine({f"a{number:02}": -float(number) for number in range(50)})
    ties = Engine({f"b{number:02}": 0.0 for number in range(50)})
    found = await best_candidates(2, apart.propose, ties.propose, margin=3)
    assert names(found) == ["a00", "b00"]
    assert apart.limits == [5]
    assert ties.limits == [5, 20, 80]


async def test_an_engine_with_a_limit_is_asked_for_no_more() -> None:
    """The best of the most proposals it gives are the answer, also where k is more than that."""
    engine = Engine({f"c{number:02}": 1.0 for number in range(50)})
    assert len(await best_candidates(3, engine.propose, margin=2, most=12)) == 3
    assert engine.limits == [5, 12]
    assert len(await best_candidates(20, engine.propose, margin=2, most=12)) == 12


async def test_an_empty_index_has_no_candidates() -> None:
    """The engine proposes nothing: an empty answer."""
    assert await best_candidates(3, Engine({}).propose, margin=2) == []


def matrix(*rows: tuple[float, float]) -> NDArray[np.float32]:
    """Return embeddings."""
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("metric", list(Metric))
def test_a_full_answer_bounds_what_is_missing(metric: Metric) -> None:
    """The bound is the last row's score plus a rounding error; fewer rows than wanted are all."""
    rows = matrix((1, 0), (0.8, 0.6), (0, 1))
    last = {Metric.COSINE: 0.0, Metric.DOT: 0.0, Metric.L2: -(2**0.5)}[metric]
    full = score_vectors(["a", "b", "c"], rows, QUERY, metric, limit=3)
    assert full.unseen is not None
    assert last < full.unseen < last + 1e-4
    assert [one.chunk_id for one in full.candidates] == ["a", "b", "c"]
    assert score_vectors(["a", "b", "c"], rows, QUERY, metric, limit=4).unseen is None
    assert score_vectors([], matrix(), QUERY, metric, limit=4) == Proposals([], None)


def test_rows_that_cannot_be_in_the_answer_only_bound_it() -> None:
    """A row without an id is scored for the bound, and is no candidate."""
    found = score_vectors(["a", None], matrix((1, 0), (0, 1)), QUERY, Metric.DOT, limit=2)
    assert found.candidates == [Candidate("a", 1.0)]
    assert found.unseen == pytest.approx(0, abs=1e-4)


def test_distances_from_products_have_a_wider_bound() -> None:
    """Such an engine's short L2 distances are off by the root of a square's rounding error."""
    rows = matrix((1, 0), (1, 0.001))
    narrow = score_vectors(["a", "b"], rows, QUERY, Metric.L2, limit=2)
    wide = score_vectors(["a", "b"], rows, QUERY, Metric.L2, limit=2, squares=True)
    assert narrow.candidates == wide.candidates
    assert narrow.unseen is not None
    assert wide.unseen == pytest.approx(narrow.unseen + 2 * (1e-5**0.5 - 1e-5), abs=1e-6)


def test_only_close_neighbors_are_unsettled() -> None:
    """Scores within twice the error, as far as they touch the best k; chains count whole."""
    scores = [0.9, 0.8, 0.7999, 0.7, 0.6, 0.5999, 0.5998, 0.3, 0.2999]
    assert unsettled(scores, 9, 0.0001) == [1, 2, 4, 5, 6, 7, 8]
    assert unsettled(scores, 5, 0.0001) == [1, 2, 4, 5, 6]
    assert unsettled(scores, 4, 0.0001) == [1, 2]
    assert unsettled(scores, 1, 0.0001) == []
    assert unsettled([0.5] * 4, 1, 0.0001) == [0, 1, 2, 3]
    assert unsettled([0.5], 3, 0.0001) == unsettled([], 3, 0.0001) == []


@pytest.mark.parametrize("k", [1, 7, 60])
def test_settled_scores_have_the_order_of_the_exact_ones(k: int) -> None:
    """200 scores with errors as large as many gaps: the k best are those of exact scores.

    If this fails: an engine's rounding decides which of two chunks is better.
    """
    rng = np.random.default_rng(3)
    exact = {f"c{number:03}": float(rng.integers(0, 20_000)) / 1000 for number in range(200)}
    rough = {name: score + float(rng.uniform(-0.01, 0.01)) for name, score in exact.items()}
    order = sorted(rough, key=lambda name: -rough[name])
    places = unsettled([rough[name] for name in order], k, 0.01)
    settled = rough | {order[place]: exact[order[place]] for place in places}
    best = sorted(exact, key=lambda name: (-exact[name], name))[:k]
    assert sorted(settled, key=lambda name: (-settled[name], name))[:k] == best
    assert len(places) < 150


def test_embeddings_are_fetched_where_the_order_is_open() -> None:
    """Of five proposals two are close: theirs are fetched, and exact scores order them.

    The one that is gone meanwhile keeps the engine's score. If this fails: each query carries all
    embeddings, or chance orders what is nearly equal.
    """
    rows = matrix((1, 0), (0.8, 0.6), (0.8000001, 0.5999999), (0, 1), (-1, 0))
    rough = [1.0, 0.8000002, 0.8000001, 0.0, -1.0]
    proposed = [Candidate(f"c{place}", score) for place, score in enumerate(rough)]
    assert open_order(proposed, 4) == ["c1", "c2"]
    stored = {"c1": rows[1], "c2": rows[2].tolist()}
    found = settled(proposed, stored, -1.0, QUERY, Metric.DOT)
    assert found.candidates[1].raw_score < found.candidates[2].raw_score
    assert found.unseen == pytest.approx(-1.0, abs=1e-4)
    assert found.unseen is not None
    assert found.unseen > -1.0
    found = settled(proposed, {"c1": rows[1]}, None, QUERY, Metric.DOT)
    assert (found.candidates[2], found.unseen) == (proposed[2], None)


def test_cosines_are_computed_again_only_if_they_are_close() -> None:
    """The chunk that does not pass is neither fetched nor an answer; its score still ends the list.

    If this fails: each query carries all embeddings, or a filter lets a wrong chunk through.
    """
    scorer = VectorScorer(registration("pet", metric="cosine", normalize=True), QUERY, 2)
    near = [Neighbor("a", 0.8000002), Neighbor("b", 0.8000001), Neighbor("c", 0.5, passes=False)]
    assert scorer.unit_length
    assert scorer.open(near) == ["a", "b"]
    rows = {"a": [0.8, 0.6], "b": [0.8000001, 0.5999999]}
    found = scorer.proposals(near, rows, limit=3)
    assert [one.chunk_id for one in found.candidates] == ["a", "b"]
    assert found.candidates[0].raw_score < found.candidates[1].raw_score
    assert found.unseen == pytest.approx(0.5, abs=1e-4)
    assert scorer.proposals(near, rows, limit=4).unseen is None
    assert scorer.proposals([], {}, limit=4) == Proposals([], None)


def test_scores_of_embeddings_of_any_length_are_computed_again() -> None:
    """All embeddings are needed; a chunk that was deleted in between is left out.

    If this fails: a rounding error of the engine decides, or a deletion ends the search too early.
    """
    scorer = VectorScorer(registration("pet", metric="dot", normalize=False), QUERY, 2)
    near = [Neighbor("a", 9.0), Neighbor("gone", 8.0), Neighbor("b", 7.0, passes=False)]
    assert not scorer.unit_length
    assert scorer.open(near) == ["a", "gone", "b"]
    found = scorer.proposals(near, {"a": [3, 0], "b": [2, 0]}, limit=3)
    assert found.candidates == [Candidate("a", 3.0)]
    assert found.unseen is not None
    assert found.unseen >= 2.0


def test_all_chunks_are_compared_some_at_a_time() -> None:
    """The k best of all parts, ties by id; a row without an id is no answer.

    If this fails: an engine whose graph misses chunks answers without them.
    """
    some: tuple[list[str | None], NDArray[np.float32]] = (["c", None], matrix((1, 0), (9, 0)))
    assert names(
        nearest_of([some, (["b", "a"], matrix((1, 0), (0, 1)))], QUERY, Metric.DOT, 2)
    ) == ["b", "c"]
