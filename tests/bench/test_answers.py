"""`corral bench answers`: questions, measures, the judge, the report, and refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.bench.answers.judge import PROMPT, verdict
from corral.bench.answers.measures import Answer, collect, contains, measure
from corral.bench.answers.questions import Question, read_question_sets
from corral.bench.report.report import read_report
from corral.providers.rag.answer import NO_ANSWER
from corral.providers.rag.answer_events import (
    Cited,
    Ended,
    Event,
    Searched,
    Source,
    Text,
    Usage,
)
from corral.server.cli.cli import main

from ..chat_service import ChatService, running_chat, said
from .judged_files import write_beir

ROOT = Path(__file__).parents[2]
QUESTION = Question("Who eats sheep?", ("wolves",), frozenset({"d2", "d9"}))


def source(document: str, number: int = 1) -> Source:
    """Return a passage of a document."""
    chunk = Chunk(chunk_id=f"c{number}", content="Text.", metadata={"document_id": document})
    return Source(number, "db", chunk, 0.9, "Text.")


def told(*events: Event) -> Answer:
    """Return the answer that events tell."""

    async def streamed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return asyncio.run(collect(streamed()))


def answers_file(folder: Path, *rows: object) -> Path:
    """Write the right answers of a judged set."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "answers.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a data folder and a current folder of the test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("CORRAL_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def service(home: Path) -> Iterator[ChatService]:
    """Yield a scripted language model `tiny`, which the home's run.yaml configures."""
    with running_chat() as running:
        config = {"base_url": running.url, "models": ["tiny"], "max_retries": 0}
        inference = [
            {"provider_id": "llm", "provider_type": "remote::chat", "config": config},
            {"provider_id": "extractive", "provider_type": "inline::extractive"},
        ]
        hashing = [{"provider_id": "hashing", "provider_type": "inline::hashing"}]
        settings = {
            "providers": {"inference": inference, "embedding": hashing},
            "default_embedding_model": "hashing",
        }
        (home / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        yield running


def corral(*arguments: object) -> Result:
    """Run `corral bench answers` in this process."""
    return CliRunner().invoke(main, ["bench", "answers", *map(str, arguments)])


def test_citations_count_documents() -> None:
    """Precision and recall are of documents, however many of their passages are cited.

    If this fails: an answer that quotes one document twice looks better or worse than it is.
    """
    answer = told(
        Searched([], [], [source("d2"), source("d1", 2)], "", {}),
        Text("Wolves do."),
        Cited(source("d2")),
        Text(" They do."),
        Cited(source("d2", 3)),
        Cited(source("d1", 2)),
        Ended("stop", Usage(40, 6)),
    )
    values = measure(QUESTION, answer)
    assert (values["precision"], values["recall"]) == (0.5, 0.5)
    assert (values["retrieved"], values["answered"], values["sentences"]) == (1, 1, 2)
    assert (values["prompt_tokens"], values["completion_tokens"]) == (40, 6)
    assert "refused" not in values


def test_a_document_has_its_file_as_a_name() -> None:
    """A question can name a source by its file instead of its id."""
    metadata = {"document_id": "d7", "filename": "wolves.md"}
    cited = Source(1, "db", Chunk(chunk_id="c", content="x", metadata=metadata), 0.9, "x")
    answer = told(Text("They do."), Cited(cited))
    values = measure(Question("Who?", (), frozenset({"wolves.md"})), answer)
    assert (values["precision"], values["recall"]) == (1, 1)


@pytest.mark.parametrize(
    "answer", [told(Text("Wolves do.")), told(Text(NO_ANSWER), Cited(source("d2")))]
)
def test_no_citation_is_a_refusal(answer: Answer) -> None:
    """An answer without a citation, or with the words for no answer, counts as refused.

    A refusal of an answerable question has no right answer; of another question it is right.
    """
    values = measure(QUESTION, answer)
    assert (values["answered"], values["contained"], values["first"]) == (0, 0, 0)
    assert "sentences" not in values
    assert measure(Question("Why?", answerable=False), answer)["refused"] == 1


def test_an_answer_to_an_unanswerable_question_is_not_refused() -> None:
    """It counts in no measure of answerable questions."""
    answer = told(Text("Wolves do."), Cited(source("d2")))
    values = measure(Question("Why?", answerable=False), answer)
    assert values["refused"] == 0
    assert not values.keys() & {"answered", "precision", "recall", "contained"}


def test_a_right_answer_first_or_later() -> None:
    """`first` looks at the first sentence alone, `contained` at the whole text."""
    answer = told(
        Searched([], [], [source("d2")], "", {}),
        Text("They graze."),
        Cited(source("d1")),
        Text(" Wolves do."),
        Cited(source("d2")),
    )
    values = measure(QUESTION, answer)
    assert (values["contained"], values["first"]) == (1, 0)
    assert (values["contained_retrieved"], values["first_retrieved"]) == (1, 0)
    other = measure(Question("Who?", ("they graze",), frozenset({"d5"})), answer)
    assert (other["contained"], other["first"]) == (1, 1)
    assert "contained_retrieved" not in other  # no judged source was retrieved


def test_texts_are_compared_in_one_form() -> None:
    """Width, case and white space make no difference to a right answer."""
    assert contains("In the year\n\uff11\uff19\uff16\uff19, STRASSE", ["year 1969", "x"])
    assert contains("Stra\u00dfe", ["STRASSE"])
    assert not contains("1968", ["1969"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("yes", True), (" **No**.\n", False), ("Yes!", True), ("yes and no", None), ("", None),
     ("I would say yes", None), ("yesterday", None)],
)  # fmt: skip
def test_a_verdict_is_yes_or_no_alone(text: str, expected: bool | None) -> None:
    """Any other text is no verdict; it is counted, never guessed."""
    assert verdict(text) is expected


def test_the_docs_have_the_prompt_of_the_judge() -> None:
    """docs/benchmark-reports.md shows the prompt as it is sent."""
    assert PROMPT in (ROOT / "docs" / "benchmark-reports.md").read_text("utf-8")


def test_extractive_answers_of_a_judged_set(tmp_path: Path) -> None:
    """Each mode has its table, in the terminal and in the reports; the answers are in a file.

    A question with an empty list of answers is unanswerable, even if nothing is judged for it.
    """
    folder = answers_file(
        write_beir(tmp_path / "farm"),
        {"_id": "q1", "answers": ["wolves"]},
        {"_id": "q2", "answers": []},
    )
    done = corral(
        "--data", folder, "--model", "extractive", "--embedder", "hashing", "--modes",
        "keyword,hybrid", "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for shown in ("farm, keyword on sqlite, answers of extractive, 3 questions", "Latency, p95"):
        assert shown in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    by_words, _ = report = read_report(tmp_path / "out").answers
    assert [row.mode for row in report] == ["keyword", "hybrid"]
    assert by_words.counts["answered"] == 2
    assert by_words.counts["refused"] == 1
    assert by_words.counts["contained"] == 1
    assert by_words.metrics["contained"].mean == 1
    assert by_words.metrics["retrieved"].mean == 1
    lines = (tmp_path / "out" / str(by_words.answers_file)).read_text("utf-8").splitlines()
    assert [json.loads(line)["_id"] for line in lines] == ["q1", "q2", "q3"]
    for name in ("report.md", "report.html"):
        assert "Citation precision" in (tmp_path / "out" / name).read_text("utf-8")


def test_a_judge_and_questions_for_a_registered_vector_db(
    tmp_path: Path, service: ChatService
) -> None:
    """The judge gets each cited statement with its sources; unreadable verdicts are counted.

    If this fails: look at the order of the requests, answer and verdicts of one question first.
    """
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "wolves.md").write_text("Wolves eat sheep on the hill.", encoding="utf-8")
    filled = CliRunner().invoke(main, ["ingest", "farm", str(notes), "--create"])
    assert filled.exit_code == 0, filled.output
    questions = tmp_path / "farm.jsonl"
    rows = [
        {"question": "Who eats sheep?", "answers": ["wolves"], "sources": ["wolves.md"]},
        {"question": "Where are the sheep?", "answers": ["hill"]},
        {"question": "What is on Mars?", "answerable": False},
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    service.scripts = [
        said("Wolves eat them [1]. They are hungry."), said("Yes."),
        said("On a hill [1]. They sleep [1]."), said("no"), said("Perhaps"),
        said("I do not know."),
    ]  # fmt: skip
    done = corral(
        "--data", questions, "--vector-db", "farm", "--model", "tiny", "--judge", "tiny",
        "--modes", "keyword", "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (row,) = read_report(tmp_path / "out").answers
    assert (row.backend, row.model, row.judge) == ("farm", "tiny", "tiny")
    assert (row.verdicts, row.unparseable) == (3, 1)
    assert row.metrics["faithful"].mean == 0.5
    assert row.metrics["refused"].mean == 1
    assert row.metrics["recall"].mean == 1
    assert row.metrics["contained"].mean == 1
    assert row.metrics["cited_statements"].mean == 0.75
    assert "1 of 3" in done.stdout
    prompt = service.requests[1]["messages"][0]["content"]
    assert "Wolves eat sheep on the hill." in prompt
    assert "Statement:\nWolves eat them" in prompt


def test_a_sample_is_seeded(tmp_path: Path) -> None:
    """Equal seeds draw equal questions, in the order of the file."""
    path = tmp_path / "many.jsonl"
    rows = [{"question": f"Question {n}?", "answers": ["x"]} for n in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (whole,) = read_question_sets([str(path)])
    one, same, other = (list(whole.limited(9, seed).questions) for seed in (1, 1, 2))
    assert one == same != other
    assert one == sorted(one, key=int)
    assert len(whole.limited(None, 1).questions) == 50


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"answers": ["x"]}', "'question' has no text"),
        ('{"question": "Who?"}', "neither 'answers' nor 'sources'"),
        ('{"question": "Who?", "answers": "x"}', "'answers' is not a list of texts"),
        ('{"question": "Who?", "sources": [1]}', "'sources' is not a list of texts"),
        ('{"question": "Who?", "answers": ["x"], "answerable": 1}', "not true or false"),
        ('{"question": "Who?", "answers": ["x"], "answerable": false}', "but there are answers"),
        ("[]", "not an object"),
        ("", "has no questions"),
    ],
)
def test_malformed_questions(tmp_path: Path, line: str, message: str) -> None:
    """A malformed line is refused with its file."""
    path = tmp_path / "q.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_question_sets([str(path)])
    assert "q.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"_id": "q9", "answers": ["x"]}, "no question 'q9'"),
        ({"_id": "q1"}, "'answers' is missing"),
        ({"_id": "q1", "answers": "x"}, "not a list of texts"),
    ],
)
def test_malformed_answers(tmp_path: Path, row: object, message: str) -> None:
    """A malformed line of answers.jsonl is refused with file and line."""
    folder = answers_file(write_beir(tmp_path / "farm"), row)
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_question_sets([str(folder)])
    assert "answers.jsonl:1" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "extractiv"], "extractive"),
        (["--model", "extractive", "--judge", "extractive"], "only quotes and cannot judge"),
        (["--model", "extractive", "--judge", "none"], "none"),
        (["--model", "extractive", "--vector-db", "none"], "none"),
        (["--model", "extractive", "--backends", "exact"], "is not a provider of Corral"),
        (["--model", "extractive", "--modes", "hybird"], "Did you mean 'hybrid'?"),
        (["--model", "extractive", "--db", "x", "--embedder", "y"], "--embedder does nothing"),
        (["--model", "extractive", "--data", "q.jsonl"], "with --vector-db"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, words: list[str], message: str) -> None:
    """A plan that cannot work is refused before any question: exit code 2, and no report."""
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answers": ["x"]}', encoding="utf-8")
    done = corral("--data", write_beir(tmp_path / "farm"), *words, "--out", "out")
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_that_fails_has_a_row(tmp_path: Path, service: ChatService) -> None:
    """The report says why, and the exit code is 1."""
    service.scripts[0].status = 500
    folder = write_beir(tmp_path / "farm")
    done = corral("--data", folder, "--model", "tiny", "--embedder", "hashing", "--out", "out")
    assert done.exit_code == 1, done.output
    (failure,) = read_report(tmp_path / "out").failures
    assert (failure.stage, failure.mode) == ("answer", "hybrid")
