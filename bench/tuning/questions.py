"""The questions of a tuning: read from a file, or made from the chunks themselves."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.bench.data.judged import read_json_lines
from corral.providers.text.analyzer import analyzer

LEAST = 10
"""Minimum number of questions: five to choose and five to judge, which proves little."""
WORDS = (8, 16)
"""Minimum and maximum number of words of a chunk from which a question is generated."""
FEWEST_WORDS = 20
"""Chunks with fewer words are headings and the like; no questions are generated from them."""

CHARACTERS = 12
"""Length of a generated question in a script without spaces."""
FEWEST_CHARACTERS = 60

GENERATED_NOTE = (
    "The questions are made of words that stand in the chunk they look for (known items). They "
    "show whether a chunk can be found again by what it says, and favor keyword search; they "
    "cannot show how questions in other words fare. Judged questions of your users are worth more."
)


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions, and the chunks or documents that answer them.

    Attributes:
        texts: By question id.
        relevant: By question id, relevance (> 0) by chunk id or document id.
        generated: True if the questions were made from the chunks.
        note: A remark for the report; "" for none.
    """

    texts: dict[str, str]
    relevant: dict[str, dict[str, int]]
    generated: bool = False
    note: str = ""


def read_questions(path: Path) -> Questions:
    """Read JSON lines: `{"query": "...", "relevant": ["id", ...]}`, or relevance by id.

    An id names a chunk or a document. `_id` names a question, otherwise its line does.

    Raises:
        InvalidRequest: A line is malformed (file and line), or there are fewer than 10 questions.
    """
    texts: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for where, row in read_json_lines(path):
        key = str(row.get("_id") or where.rpartition(":")[2])
        if key in texts:
            raise InvalidRequest(f"{where}: question {key!r} appears twice.")
        texts[key], relevant[key] = _query(row, where), _relevant(row, where)
    return checked(Questions(texts, relevant), str(path))


def _query(row: Mapping[str, Any], where: str) -> str:
    text = row.get("query")
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest(f"{where}: 'query' has no text.")
    return text


def _relevant(row: Mapping[str, Any], where: str) -> dict[str, int]:
    given = row.get("relevant")
    found = dict.fromkeys(map(str, given), 1) if isinstance(given, list) else given
    grades = {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
    if not grades or not all(type(grade) is int and grade > 0 for grade in grades.values()):
        raise InvalidRequest(
            f"{where}: 'relevant' names no chunk or document, or a grade is not an integer >= 1."
        )
    return grades


def checked(questions: Questions, source: str) -> Questions:
    """Return the questions.

    Raises:
        InvalidRequest: There are fewer than 10.
    """
    if len(questions.texts) < LEAST:
        raise InvalidRequest(
            f"{source}: at least {LEAST} questions are needed (got {len(questions.texts)}): half "
            "choose, half judge.",
            hint="With fewer than 100 the intervals will be wide.",
        )
    return questions


async def known(index: EmbeddingIndex, questions: Questions) -> Questions:
    """Return the questions without unknown ids, and a note on these.

    A question with only unknown ids is dropped.

    Raises:
        InvalidRequest: All ids are unknown, or fewer than 10 questions are left.
    """
    wanted = list(dict.fromkeys(name for found in questions.relevant.values() for name in found))
    held = {chunk.chunk_id for chunk in await index.get_chunks(wanted)}
    others = [name for name in wanted if name not in held]
    held |= {name for name in others if await index.document_chunk_ids(name)}
    unknown = [name for name in others if name not in held]
    if not unknown:
        return questions
    first = next(key for key, found in questions.relevant.items() if unknown[0] in found)
    said = (
        f"{len(unknown)} of {len(wanted)} ids under 'relevant' name no chunk or document of "
        f"{index.vector_db.identifier}, the first {unknown[0]!r} (question {first!r})."
    )
    if not held:
        hint = "'relevant' names chunk ids or document ids of this vector DB."
        raise InvalidRequest(said, hint=hint, field="queries")
    relevant = {
        key: kept
        for key, found in questions.relevant.items()
        if (kept := {name: grade for name, grade in found.items() if name in held})
    }
    texts = {key: questions.texts[key] for key in relevant}
    left_out = len(questions.texts) - len(texts)
    note = f"{said} Questions that name no other: {left_out}. They do not count."
    return checked(Questions(texts, relevant, note=note), said.rstrip("."))


async def generate(index: EmbeddingIndex, count: int, seed: int) -> Questions:
    """Generate known-item questions: words of a chunk, which is the item to find.

    The words are consecutive in the chunk, with a third of them omitted, stop words first, as if
    remembered from the text.

    Args:
        index: The index with the chunks.
        count: Number of questions to generate.
        seed: Seed for the chunks and the words.

    Raises:
        InvalidRequest: Too few chunks have enough words.
    """
    rng = random.Random(seed)
    ids = await all_ids(index)
    rng.shuffle(ids)
    texts: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for start in range(0, len(ids), count):
        for chunk in await index.get_chunks(ids[start : start + count]):
            question = _question(chunk, index.vector_db.language, rng)
            if question and len(texts) < count:
                key = f"g{len(texts) + 1}"
                texts[key], relevant[key] = question, {chunk.chunk_id: 1}
        if len(texts) >= count:
            break
    return checked(Questions(texts, relevant, generated=True), index.vector_db.identifier)


async def all_ids(index: EmbeddingIndex) -> list[str]:
    """Return the ids of all chunks, ascending."""
    ids: list[str] = []
    while page := await index.chunk_ids(ids[-1] if ids else "", 10_000):
        ids += page
    return ids


def _question(chunk: Chunk, language: str, rng: random.Random) -> str:
    words = chunk.content.split()
    if len(words) < FEWEST_WORDS:
        return _characters(chunk.content, rng)
    length = rng.randint(*WORDS)
    start = rng.randrange(len(words) - length)
    telling = [word for word in words[start : start + length] if analyzer(language).terms(word)]
    kept = set(rng.sample(range(len(telling)), math.ceil(len(telling) * 2 / 3)))
    return " ".join(word for number, word in enumerate(telling) if number in kept)


def _characters(text: str, rng: random.Random) -> str:
    """Return consecutive characters of a text without spaces; "" if it is too short."""
    plain = "".join(text.split())
    if len(plain) < FEWEST_CHARACTERS or len(text.split()) > len(plain) // 8:
        return ""
    start = rng.randrange(len(plain) - CHARACTERS)
    return plain[start : start + CHARACTERS]


def halves(keys: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Return the questions for choosing and those for judging, split at random by the seed."""
    shuffled = sorted(keys)
    random.Random(seed).shuffle(shuffled)
    middle = len(shuffled) // 2
    return sorted(shuffled[:middle]), sorted(shuffled[middle:])
