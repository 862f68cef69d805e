"""Judged questions with their answers, from a judged set's folder or a file of JSON lines.

A folder is a judged set as for `corral bench quality`. Its `answers.jsonl` is optional, with
lines `{"_id": "question id", "answers": ["..."]}`; an empty list means that no document answers the
question. A line of a file: `{"question": "...", "answers": [...], "sources": [...]}`; `sources`
names documents by id or file name, and `"answerable": false` needs neither list.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.bench.data.datasets import read_sets
from corral.bench.data.judged import JudgedSet, digests, read_json_lines, text_field
from corral.bench.data.readers import QUERIES
from corral.bench.report.rows import DataSet

ANSWERS = "answers.jsonl"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its judgments.

    Attributes:
        answers: Correct answers; empty if none are given.
        sources: Names of the documents with the answer; empty if none are judged.
        answerable: False if the right answer is a refusal.
    """

    text: str
    answers: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()
    answerable: bool = True


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions by id.

    Attributes:
        data: The set's description in a report.
        judged: Documents to store; None if the questions are about registered vector DBs.
    """

    questions: dict[str, Question]
    data: DataSet
    judged: JudgedSet | None = None

    @property
    def name(self) -> str:
        """The name of the folder, or of the file without its suffix."""
        return self.data.name

    def limited(self, limit: int | None, seed: int) -> QuestionSet:
        """Return the set with a seeded sample of at most `limit` questions, in their order."""
        if limit is None or len(self.questions) <= limit:
            return self
        keys = list(self.questions)
        places = sorted(random.Random(seed).sample(range(len(keys)), limit))
        questions = {keys[place]: self.questions[keys[place]] for place in places}
        return replace(self, questions=questions)


def read_question_sets(
    sources: list[str], languages: Mapping[str, str] | None = None
) -> list[QuestionSet]:
    """Return the sets of files and of folders.

    Args:
        sources: Files of JSON lines, or judged sets as for `read_sets`.
        languages: As for `read_sets`.

    Raises:
        InvalidRequest: One is missing or malformed (file and line), a question has neither answers
            nor sources, or two sets have the same name.
    """
    files = [name for name in sources if Path(name).is_file()]
    folders = [name for name in sources if name not in files]
    sets = [_with_answers(judged, folders) for judged in read_sets(folders, languages=languages)]
    sets += [_read_file(Path(name)) for name in files]
    names = [each.name for each in sets]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Two data sets are named {name!r}.", field="data")
    return sets


def _with_answers(judged: JudgedSet, folders: list[str]) -> QuestionSet:
    paths = [Path(name).resolve() for name in folders]
    folder = next((path for path in paths if path.name == judged.name), None)
    answers, texts = {}, judged.queries
    if folder is not None and (folder / ANSWERS).exists():
        lines = read_json_lines(folder / QUERIES)
        texts = {
            text_field(row, ("_id",), where): text_field(row, ("text",), where)
            for where, row in lines
        }
        answers = _read_answers(folder / ANSWERS, texts)
        hashes = digests([folder / ANSWERS], folder)
        judged = replace(
            judged,
            sha256={**judged.sha256, **hashes["sha256"]},
            bytes=judged.bytes + hashes["bytes"],
        )
    questions = {}
    for key, text in texts.items():
        relevant = frozenset(name for name, grade in judged.qrels.get(key, {}).items() if grade > 0)
        if key in answers:
            given = answers[key]
            questions[key] = Question(text, given, relevant if given else frozenset(), bool(given))
        elif relevant:
            questions[key] = Question(text, (), relevant)
    return QuestionSet(questions, judged.row(), judged)


def _read_answers(path: Path, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    answers: dict[str, tuple[str, ...]] = {}
    for where, row in read_json_lines(path):
        key = text_field(row, ("_id",), where)
        if key not in texts:
            raise InvalidRequest(f"{where}: queries.jsonl has no question {key!r}.")
        if key in answers:
            raise InvalidRequest(f"{where}: question {key!r} appears twice.")
        if "answers" not in row:
            raise InvalidRequest(f"{where}: 'answers' is missing.")
        answers[key] = _texts(row, "answers", where)
    return answers


def _read_file(path: Path) -> QuestionSet:
    questions = {
        where.rpartition(":")[2]: _question(row, where) for where, row in read_json_lines(path)
    }
    if not questions:
        raise InvalidRequest(f"{path} has no questions.", field="data")
    data = DataSet(
        name=path.stem,
        kind="questions",
        language="",
        documents=0,
        queries=len(questions),
        judgements=sum(len(each.sources) for each in questions.values()),
        **digests([path], path.parent),
    )
    return QuestionSet(questions, data)


def _question(row: Mapping[str, Any], where: str) -> Question:
    text = row.get("question")
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest(f"{where}: 'question' has no text.")
    answers, sources = _texts(row, "answers", where), _texts(row, "sources", where)
    answerable = row.get("answerable", True)
    if not isinstance(answerable, bool):
        raise InvalidRequest(f"{where}: 'answerable' is not true or false.")
    if answerable and not (answers or sources):
        raise InvalidRequest(
            f"{where}: the question has neither 'answers' nor 'sources'.",
            hint='Give one of them, or "answerable": false.',
        )
    if not answerable and (answers or sources):
        raise InvalidRequest(f"{where}: 'answerable' is false, but there are answers or sources.")
    return Question(text, answers, frozenset(sources), answerable)


def _texts(row: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    texts = row.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(t, str) and t.strip() for t in texts):
        raise InvalidRequest(f"{where}: {name!r} is not a list of texts.")
    return tuple(texts)
