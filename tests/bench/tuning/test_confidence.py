"""`corral bench confidence` and what a tuning proposes: areas, shares and the questions asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.vector_dbs import SearchMode
from corral.bench.tuning.confidence import proposal
from corral.bench.tuning.confidence_sets import QuestionConfidences, auroc, table, tell
from corral.bench.tuning.run import TunePlan
from corral.providers.base.config import ProviderEntry, Providers, RunConfig

from .test_tuning import filled, lines, run, text_of

HASHING = ProviderEntry(provider_id="hashing", provider_type="inline::hashing")
CONFIG = RunConfig(providers=Providers(embedding=[HASHING]), default_embedding_model="hashing")


@pytest.mark.parametrize(
    ("higher", "lower", "area"),
    [([3, 2], [1, 0], 1.0), ([1, 1], [1, 1], 0.5), ([3, 1], [2, 0], 0.75), ([0], [1], 0.0)],
)
def test_the_area_is_the_share_of_right_pairs(
    higher: list[float], lower: list[float], area: float
) -> None:
    """A pair in the right order counts 1, a tie a half; the interval holds the area."""
    found = auroc(higher, lower)
    assert found.mean == area
    assert found.low <= area <= found.high


def test_no_proposal_where_confidence_tells_nothing() -> None:
    """Where one question in ten has none, a threshold that refuses nothing is not proposed."""
    assert proposal([0.0] * 10 + [0.9] * 90, [0.5]).startswith("No min_confidence")


def test_a_proposal_refuses_few_of_the_answered() -> None:
    """Of 100 questions at most five are refused; it says how many of the others are.

    If this fails: who follows the proposal loses answers.
    """
    answered = [n / 100 for n in range(1, 101)]
    assert proposal(answered, [0.01, 0.02, 0.5, 0.6]).startswith(
        "min_confidence 0.05 refuses 4% of these questions, and 50% of them"
    )


def test_the_table_leaves_out_what_was_not_asked() -> None:
    """Without another set there are no unrelated questions, and no figure for them."""
    _, _, row = table([QuestionConfidences("set", "hybrid", [0.9, 0.8], [0.1, 0.7], [])], 0.5)
    assert row == "| set | hybrid |  | 1.000 (1.000-1.000) | 0% | 50% |  |"


async def test_judged_questions_are_told_from_removed_ones(tmp_path: Path) -> None:
    """On the set that Corral makes itself, hiding what answers a question lowers its confidence.

    If this fails: the filter hides nothing, or confidence does not follow what a query can see.
    """
    plan = TunePlan(CONFIG, tmp_path, data="miniature")
    [told] = await tell(plan, ["miniature"], [SearchMode.KEYWORD], 40)
    assert told.unrelated == []
    assert len(told.answered) == len(told.removed) > 20
    assert auroc(told.answered, told.removed).mean > 0.55
    assert all(one >= other for one, other in zip(told.answered, told.removed, strict=True))


async def test_a_tuning_proposes_a_least_confidence(tmp_path: Path) -> None:
    """For judged questions, in a note and among the settings that it recommends."""
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": [f"c{n}"]} for n in range(40)]
    section = await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))
    [said] = [note for note in section.notes if note.startswith("min_confidence ")]
    assert "min_confidence" not in section.registration
    least = section.settings["min_confidence"]
    assert said.startswith(f"min_confidence {least:g} refuses ")
    assert 0 < least < 1
