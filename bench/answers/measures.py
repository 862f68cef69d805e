"""The measures of one answer. A refusal cites nothing, or says that nothing was found."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass, field

from corral.api.chunks import Chunk
from corral.api.document_names import filename_of
from corral.bench.answers.questions import Question
from corral.providers.rag.answer import NO_ANSWER
from corral.providers.rag.answer_events import Cited, Ended, Event, Searched, Source, Text, Usage
from corral.providers.text.sentences import sentences


@dataclass(slots=True)
class Statement:
    """A piece of an answer, and the sources cited at its end."""

    text: str = ""
    sources: list[Source] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """An answer, collected from its events.

    Attributes:
        statements: In order; the last may have no citation.
        retrieved: The sources given to the model.
        verdicts: The verdicts on statements with a citation; None for an unreadable verdict.
    """

    statements: list[Statement] = field(default_factory=list)
    retrieved: list[Source] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    verdicts: list[bool | None] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(each.text for each in self.statements)

    @property
    def cited(self) -> list[Source]:
        """The cited sources, one entry per citation."""
        return [source for each in self.statements for source in each.sources]

    @property
    def is_refused(self) -> bool:
        """True if nothing is cited, or the text says that nothing was found."""
        return not self.cited or NO_ANSWER in self.text


async def collect(events: AsyncIterable[Event]) -> Answer:
    """Collect an answer from its events."""
    answer = Answer()
    async for event in events:
        match event:
            case Searched():
                answer.retrieved += event.sources
            case Text():
                if not answer.statements or answer.statements[-1].sources:
                    answer.statements.append(Statement())
                answer.statements[-1].text += event.text
            case Cited():
                if not answer.statements:
                    answer.statements.append(Statement())
                answer.statements[-1].sources.append(event.source)
            case Ended():
                answer.usage = event.usage
    return answer


def measure(question: Question, answer: Answer) -> dict[str, float]:
    """Return the measures that apply to a question, by key of `MEASURES`."""
    refused = answer.is_refused
    values: dict[str, float] = {
        "prompt_tokens": answer.usage.prompt,
        "completion_tokens": answer.usage.completion,
    }
    if not question.answerable:
        values["refused"] = refused
    else:
        values["answered"] = not refused
        values |= _citations(question, answer) | _contained(question, answer)
    if not refused:
        spoken = [each for each in answer.statements if any(map(str.isalnum, each.text))]
        cites = [bool(each.sources) for each in spoken]
        values["sentences"] = sum(len(sentences(each.text)) for each in spoken)
        values["cited_statements"] = sum(cites) / len(cites) if cites else 0.0
    verdicts = [each for each in answer.verdicts if each is not None]
    if verdicts:
        values["faithful"] = sum(verdicts) / len(verdicts)
    return values


def _citations(question: Question, answer: Answer) -> dict[str, float]:
    """Return precision, recall and `retrieved` by documents, not by passages."""
    if not question.sources:
        return {}
    cited = {names_of(source.chunk) for source in answer.cited}
    right = [names for names in cited if names & question.sources]
    recalled = frozenset().union(*right) & question.sources
    values: dict[str, float] = {
        "recall": len(recalled) / len(question.sources),
        "retrieved": any(names_of(each.chunk) & question.sources for each in answer.retrieved),
    }
    return values | ({"precision": len(right) / len(cited)} if cited else {})


def _contained(question: Question, answer: Answer) -> dict[str, float]:
    if not question.answers:
        return {}
    values: dict[str, float] = {"contained": False, "first": False}
    if not answer.is_refused:
        begin = answer.statements[0].text
        start, end = next(iter(sentences(begin)), (0, 0))
        values["contained"] = contains(answer.text, question.answers)
        values["first"] = contains(begin[start:end], question.answers)
    if any(names_of(each.chunk) & question.sources for each in answer.retrieved):
        values |= {f"{name}_retrieved": value for name, value in values.items()}
    return values


def contains(text: str, answers: Iterable[str]) -> bool:
    """Return True if a text has one of the answers, in NFKC and ignoring case and spacing."""
    whole = _normalized(text)
    return any(_normalized(answer) in whole for answer in answers)


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def names_of(chunk: Chunk) -> frozenset[str]:
    """Return the names by which a question can name a chunk's document: its id and its file."""
    document = chunk.metadata.get("document_id", chunk.chunk_id)
    return frozenset({str(document), filename_of(chunk)})
