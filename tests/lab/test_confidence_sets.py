"""`python -m lab.confidence_sets`: areas, shares and the questions asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from corral.api.vector_dbs import SearchMode
from corral.bench.tuning.run import TunePlan
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from lab.confidence_sets import QuestionConfidences, auroc, main, table, tell

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


def test_an_article_has_a_text() -> None:
    """`--article 0` is refused before anything is stored.

    If this fails: no text is hidden, and the figures say that nothing is told apart.
    """
    done = CliRunner().invoke(main, ["--data", "miniature", "--article", "0"])
    assert (done.exit_code, "0 is not in the range" in done.stderr) == (2, True)
