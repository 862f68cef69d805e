"""`corral query` and `corral ask`: hits, contexts, answers, and which options are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ...state_database import copy_home

Corral = Callable[..., Result]


@pytest.fixture
def filled(corral: Corral, home: Path, filled_home: Callable[[str], Path]) -> Corral:
    """The command line with the vector DB `farm` that holds the documents."""
    copy_home(filled_home("farm"), home)
    return corral


def test_a_query_shows_the_hits(filled: Corral) -> None:
    """The table has rank, score, rank in each leg, document and the first words."""
    shown = filled("query", "farm", "How far apart do fence posts stand?")
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.stdout.splitlines() if line.strip()]
    assert lines[0].split() == ["#", "score", "vector", "keyword", "document", "text"]
    assert lines[2].split()[:5] == ["1", "1.000", "1", "1", "fences.md"]
    assert "A fence keeps the cattle in." in lines[2]
    assert "Context" not in shown.stdout


def test_max_tokens_shows_the_context(filled: Corral) -> None:
    """With a budget the context is printed, with its size, which is within the budget."""
    shown = filled("query", "farm", "water trough", "--max-tokens", 150, "--k", 1)
    assert "two hundred liters" in shown.stdout
    used, budget = (int(word) for word in shown.stdout.split("Context: ")[1].split()[:3:2])
    assert 0 < used <= budget == 150


def test_without_a_budget_no_hit_is_dropped(filled: Corral) -> None:
    """As many hits as asked for, however long they are."""
    reply = json.loads(filled("query", "farm", "the barn", "--k", 5, "--json").stdout)
    assert len(reply["metadata"]["document_ids"]) == 5


def test_explain_shows_both_legs(filled: Corral) -> None:
    """`--explain` adds each leg's raw score, its share and the matched terms."""
    shown = filled(
        "query", "farm", "iron hook", "--k", 1, "--explain", "--ranker", '{"type": "rrf"}'
    ).stdout
    why = [line.split() for line in shown.splitlines() if " vector " in line or " keyword " in line]
    vector, keyword = (line for line in why if line[0] == "1")
    assert (vector[1], keyword[1]) == ("vector", "keyword")
    half = ["0.500", "x", "1.000", "=", "0.500"]  # first in each leg: half of the score
    assert (vector[5:10], keyword[5:10]) == (half, half)
    assert keyword[10:] == ["hook", "iron"] or keyword[10:] == ["iron", "hook"]


def test_json_is_the_reply(filled: Corral) -> None:
    """`--json` prints one JSON document and nothing else, with any character in it."""
    shown = filled("query", "farm", "blåbær skogen", "--mode", "keyword", "--json")
    reply = json.loads(shown.stdout)
    assert reply["metadata"]["document_ids"] == ["blåbær.markdown"]
    assert any("Blåbær vokser" in item["text"] for item in reply["content"])


def test_modes_and_threshold_reach_the_server(filled: Corral) -> None:
    """The mode decides which legs are asked, the threshold which hits stay."""
    vector = filled("query", "farm", "gate", "--mode", "vector", "--json").stdout
    legs = [set(why["legs"]) for why in json.loads(vector)["metadata"]["explanations"]]
    assert legs == [{"vector"}] * 5
    nothing = filled("query", "farm", "gate", "--mode", "keyword", "--threshold", "0.999")
    assert (nothing.exit_code, nothing.stdout.strip()) == (0, "Nothing found.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--k", "0"], "--k must be a number from 1 or auto (got '0')."),
        (["--k", "100000"], "max_chunks"),
        (["--threshold", "7"], "'--threshold': 7.0 is not in the range 0<=x<=1."),
        (["--threshold", "nan"], "score_threshold"),
        (["--max-tokens", "0"], "'--max-tokens': 0 is not in the range x>=1."),
        (["--min-confidence", "2"], "'--min-confidence': 2.0 is not in the range 0<=x<=1."),
        (["--mode", "psychic"], "psychic"),
        (["--k", "many"], "many"),
    ],
)
def test_bad_options_are_refused(filled: Corral, arguments: list[str], said: str) -> None:
    """Bad input: exit code 2, and a message that names the culprit, without a traceback."""
    refused = filled("query", "farm", "gate", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.output
    assert refused.stdout == ""


def test_an_unknown_vector_db_is_named(filled: Corral) -> None:
    """A typo in the name shows which vector DBs there are."""
    refused = filled("query", "fram", "gate")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("Error: ")
    assert "'fram'" in refused.stderr
    assert "farm" in refused.stderr


def test_without_a_text_filters_choose_the_hits(filled: Corral) -> None:
    """Documents that pass a filter are shown in the order of a field; without either it says how.

    If this fails: what is known by its metadata can only be found by guessing a question.
    """
    last = "order_by=" + json.dumps({"key": "document_id", "direction": "desc"})
    passing = {"type": "lt", "key": "document_id", "value": "h"}
    options = ("-o", "filters=" + json.dumps(passing), "-o", last, "--k", 100)
    reply = json.loads(filled("query", "farm", *options, "--json").stdout)
    names = reply["metadata"]["document_ids"]
    assert names == sorted(names, reverse=True)
    assert len(set(names)) > 1
    assert max(names) < "h"
    shown = filled("query", "farm", *options, "--explain").stdout
    assert f"{names[0]}" in shown
    assert "ordered by document_id desc" in " ".join(shown.split())
    refused = filled("query", "farm")
    assert refused.exit_code == 2
    assert "The question is empty" in refused.output


def test_an_answer_shows_its_sources(filled: Corral) -> None:
    """The answer quotes a source, numbers it, and names it below; nothing else is printed."""
    shown = filled("ask", "farm", "How far apart do fence posts stand?")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert "Posts stand three meters apart. [1]" in lines[0]
    assert "[1] fences.md, line" in lines[-1]
    reply = json.loads(filled("ask", "farm", "posts", "--json").stdout)
    assert (reply["object"], reply["status"]) == ("response", "completed")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nope", "posts"), "There is no vector DB 'nope'"),
        (("farm+nope", "posts"), "There is no vector DB 'nope'"),
        (("farm", "posts", "--model", "nope"), "Model 'nope' not found"),
        (("farm", ""), "The question is empty"),
    ],
)
def test_what_cannot_be_answered(filled: Corral, arguments: tuple[str, ...], told: str) -> None:
    """Bad input is an error with exit code 2, and nothing is printed to stdout."""
    failed = filled("ask", *arguments)
    assert failed.exit_code == 2, failed.output
    assert told in failed.stderr
    assert failed.stdout == ""
