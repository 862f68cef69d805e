"""Confidence: what the legs of a search say of whether they found an answer."""

from __future__ import annotations

from itertools import pairwise

import pytest

from corral.api.confidence import EVEN_ODDS, Evidence
from corral.api.engine_index import EngineIndex
from corral.api.hits import KeywordLeg
from corral.api.vector_dbs import VectorDB

from .scripted_engine import ScriptedEngine, candidates, vector_db

STEPS = [n / 20 for n in range(21)]


@pytest.mark.parametrize("known", ["cosine", "keyword_share", "both"])
def test_confidence_rises_with_the_evidence(known: str) -> None:
    """It stays in [0, 1], rises with each number, and is small without any.

    If this fails: a question that the store answers better could be refused before another.
    """
    told = []
    for step in STEPS:
        evidence = {"cosine": step, "keyword_share": step}
        told.append(Evidence(**(evidence if known == "both" else {known: step})).confidence)
    assert all(a is not None and b is not None and 0 <= a < b <= 1 for a, b in pairwise(told))
    assert told[0] is not None
    assert told[0] < 0.05


def test_both_legs_have_to_agree() -> None:
    """The geometric mean: no cosine makes up for a text that has no word of the question.

    If this fails: near texts about something else are taken for answers.
    """
    alone, both = Evidence(0.8).confidence, Evidence(0.8, 0.0).confidence
    assert alone is not None
    assert both is not None
    assert both < 0.05 < EVEN_ODDS < alone


def test_a_cosine_counts_from_that_of_unrelated_texts() -> None:
    """Below `unrelated_cosine` nothing counts, and what is above is scaled to the rest."""
    assert Evidence(0.9, 0.3, 0.8).confidence == pytest.approx(Evidence(0.5, 0.3).confidence)
    assert Evidence(0.7, 0.3, 0.8).confidence == Evidence(-1.0, 0.3).confidence
    assert Evidence(1.5).confidence == Evidence(1.0).confidence


def test_without_evidence_there_is_none() -> None:
    """A search in which no leg can tell has no confidence, not a made-up one."""
    assert Evidence().confidence is None


async def test_a_leg_that_knows_no_greatest_score_says_nothing() -> None:
    """Where a keyword hook does not rank by BM25, its leg is not counted.

    In keyword mode there is then no confidence.
    """
    engine = ScriptedEngine(candidates(a=0.4), candidates(a=3.0))
    index = EngineIndex(engine)
    hybrid = await index.query([1, 0], "words", mode="hybrid")
    assert hybrid.evidence == Evidence(0.4)
    assert (await index.query(None, "words", mode="keyword")).confidence is None


async def test_the_best_of_each_leg_counts() -> None:
    """Of 3.0 out of at most 12.0 a quarter, and the first cosine, even of another chunk."""
    engine = ScriptedEngine(candidates(a=0.4, b=0.3), KeywordLeg(candidates(b=3.0, a=1.0), 12.0))
    index = EngineIndex(engine)
    answer = await index.query([1, 0], "words", mode="hybrid")
    assert answer.evidence == Evidence(0.4, 0.25)
    assert answer.confidence == Evidence(0.4, 0.25).confidence


async def test_a_question_without_a_word_is_not_judged_by_words() -> None:
    """The keyword leg has no say then; alone it found nothing, which is its answer."""
    engine = ScriptedEngine(candidates(a=0.4), KeywordLeg([], 0.0))
    index = EngineIndex(engine)
    assert (await index.query([1, 0], "?!", mode="hybrid")).evidence == Evidence(0.4)
    assert (await index.query(None, "?!", mode="keyword")).evidence == Evidence(None, 0.0)


def test_registrations_of_before_have_no_least_confidence() -> None:
    """What was stored without the new fields is read as it was meant: nothing is refused."""
    old = vector_db().model_dump()
    del old["min_confidence"], old["unrelated_cosine"]
    read = VectorDB.model_validate(old)
    assert (read.min_confidence, read.unrelated_cosine) == (0.0, 0.0)
