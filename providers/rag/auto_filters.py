"""Filters that a language model proposes from a question, checked against stored metadata.

    values of the registered keys, from a sample of chunks -> prompt -> answer
    -> comparisons, each checked

The sample has only chunks that the caller can read. The model's answer is data: a comparison counts
only with a registered key, a value of the key's type and, unless the key has too many values to
list them, a value that is stored. Proposals are added to the request's own filters, so they can
only narrow a search. Whatever the model answers, the search goes on; a note says what happened.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidFilter, InvalidRequest, ProviderError
from corral.api.filters import (
    AutoFilters,
    Comparison,
    Compound,
    Filter,
    Scalar,
    as_json,
    elements,
    kind_of,
    parse_filter,
)
from corral.api.hits import Step
from corral.providers.models.language import serving, without_thoughts
from corral.providers.rag.tasks import run_all

MAX_SAMPLED = 2000
"""Maximum number of chunks to take values from, over all vector DBs of a question."""

MAX_LISTED = 50
"""Values of a key in a prompt; the most frequent ones."""

MAX_VALUE_CHARACTERS = 100
"""Longest value in a prompt."""

MAX_VALUES_CHARACTERS = 8000
"""Characters of all values in a prompt, divided equally among the keys."""

MAX_QUESTION_CHARACTERS = 2000
"""Characters of the question in a prompt."""

MAX_ANSWER_CHARACTERS = 10_000
"""Characters of a model's answer that are read."""

MAX_COMPARISONS = 8
"""Comparisons of a proposal that are read."""

CACHE_SECONDS = 60.0
"""Age at which values are read again even if the number of chunks is the same."""

MAX_CACHED = 256

Kind: TypeAlias = Literal["boolean", "number", "text", "date"]

_Value: TypeAlias = tuple[str, Scalar]
"""The kind of a value, and the value: 1 and true are equal, and so are 1 and 1.0."""

_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")
_ORDERING = ("gt", "gte", "lt", "lte")
_WITHOUT = 'Leave auto_filters out, or send "none".'
_PROMPT = """\
Turn a question about documents into filters on their metadata. Today is {today}. The keys:
{keys}
Answer with a JSON array and nothing else. An element is {{"type": T, "key": K, "value": V}}. T is \
eq, ne, gt, gte, lt or lte, or in or nin with an array as V. All elements must hold. Take only \
conditions that the question states, with the keys and values above. Answer [] if it states none.
Question: {question}
"""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The values of a metadata key.

    Attributes:
        kind: The most frequent kind of its values; `date` if all texts are ISO 8601 dates or times.
        values: Of this kind, most frequent first.
        is_complete: False if other values exist, or may exist.
        lowest: None for text and booleans.
        highest: None for text and booleans.
    """

    key: str
    kind: Kind
    values: tuple[Scalar, ...]
    is_complete: bool
    lowest: Scalar | None = None
    highest: Scalar | None = None

    def described(self) -> str:
        """Return the line of a prompt."""
        parts = [f"{json.dumps(self.key, ensure_ascii=False)}: {self.kind}"]
        if self.lowest is not None:
            parts.append(f"from {json.dumps(self.lowest)} to {json.dumps(self.highest)}")
        if self.values and (self.is_complete or self.kind == "text"):
            shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in self.values)
            parts.append(f"{'one of' if self.is_complete else 'such as'} {shown}")
        return ", ".join(parts)

    def checked(self, comparison: Comparison, question: str) -> Comparison | None:
        """Return a comparison with values as they are stored; None if it is refused."""
        orders = comparison.type in _ORDERING
        if orders and self.kind not in ("number", "date"):
            return None
        stored = [self._stored(value, question, orders) for value in comparison.values]
        values = tuple(value for value in stored if value is not None)
        if not values:
            return None
        return replace(
            comparison, value=values if isinstance(comparison.value, tuple) else values[0]
        )

    def _stored(self, value: Scalar, question: str, orders: bool) -> Scalar | None:
        """Return a value in its stored form; None if it is of another kind, or not stored."""
        typed = _typed(value, self.kind)
        if typed is None or orders:
            return typed
        folded = {_folded(each): each for each in self.values}
        if _folded(typed) in folded:
            return folded[_folded(typed)]
        named = rf"(?<!\w){re.escape(str(typed))}(?!\w)"
        is_named = str(typed).strip() and re.search(named, question, re.IGNORECASE)
        return typed if is_named and not self.is_complete else None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The filter that a language model proposed for a question.

    Attributes:
        model: Its name.
        filter: None if none was proposed, or if it was dropped.
        note: Message for the caller; "" if the question states no condition.
        accepted: Number of comparisons in the filter.
        refused: Number of proposed comparisons that are not in it.
    """

    model: str
    filter: Filter | None = None
    note: str = ""
    accepted: int = 0
    refused: int = 0

    def dropped(self) -> Proposal:
        """Return the proposal without its filter, which left no hit."""
        if self.filter is None:
            return self
        note = f"Dropped a filter that {self.model} proposed, since it leaves no hit: "
        return replace(
            self,
            filter=None,
            note=note + _shown(self.filter),
            accepted=0,
            refused=self.accepted + self.refused,
        )

    def with_own(self, own: Filter | None) -> Filter | None:
        """Return the request's own filter, narrowed by the proposed one."""
        if own is None or self.filter is None:
            return own or self.filter
        return Compound("and", (own, self.filter))

    @property
    def step(self) -> Step:
        """The step of an explanation."""
        return Step("auto_filters", self.accepted, self.refused, self.note or "no condition")


async def propose(
    question: str, auto: AutoFilters, indexes: Sequence[EmbeddingIndex], library: object
) -> Proposal:
    """Return the filter that a language model proposes for a question.

    Args:
        question: Has a visible character.
        auto: The model, and the keys that a filter may compare.
        indexes: The searched vector DBs, as the caller sees them.
        library: Finds the model if it is a `LanguageModels`, such as a `Stack`.

    Raises:
        InvalidRequest: No language model is configured, or not this one.
        ProviderError: A backend failed. A failure of the model is a note.
    """
    _, models = serving(library, auto.model, "auto_filters.model", _WITHOUT)
    values = await _cache.of(indexes, auto.keys)
    if not values:
        keys = ", ".join(auto.keys)
        return Proposal(auto.model, note=f"No filter was proposed: no chunk has values of {keys}.")
    try:
        answer = await models.complete(auto.model, prompt_of(question, values.values()))
    except (ProviderError, InvalidRequest) as error:
        note = f"No filter was proposed, because {auto.model} failed: {error.message}"
        return Proposal(auto.model, note=note)
    return proposal_of(answer, question, values, auto.model)


def prompt_of(question: str, values: Iterable[KeyValues]) -> str:
    """Return the prompt for a question; a long question is cut."""
    return _PROMPT.format(
        today=datetime.now(UTC).date(),
        keys="\n".join(f"- {each.described()}" for each in values),
        question=json.dumps(question[:MAX_QUESTION_CHARACTERS], ensure_ascii=False),
    )


def proposal_of(
    answer: str, question: str, values: Mapping[str, KeyValues], model: str
) -> Proposal:
    """Return the proposal in a model's answer. Refused comparisons are only counted.

    Nothing of the answer is in the note but comparisons that are in the filter: an answer can
    repeat a question or a document.
    """
    proposed = _comparisons(answer)
    if proposed is None:
        return Proposal(
            model, note=f"No filter was proposed: the answer of {model} is not a JSON array."
        )
    checked = [_checked(one, question, values) for one in proposed]
    accepted = list(dict.fromkeys(each for each in checked if each is not None))
    refused = checked.count(None)
    filter_: Filter | None = None
    if accepted:
        filter_ = accepted[0] if len(accepted) == 1 else Compound("and", tuple(accepted))
    parts = []
    if filter_ is not None:
        parts.append(f"Filtered as {model} proposed: {_shown(filter_)}")
    if refused:
        parts.append(
            f"Refused {refused} of {len(proposed)} comparisons that {model} proposed, by their "
            "key, type or value."
        )
    return Proposal(model, filter_, " ".join(parts), len(accepted), refused)


def _shown(filter_: Filter) -> str:
    return json.dumps(as_json(filter_), ensure_ascii=False)


def _checked(proposed: Any, question: str, values: Mapping[str, KeyValues]) -> Comparison | None:
    try:
        parsed = parse_filter(proposed)
    except InvalidFilter:
        return None
    if not isinstance(parsed, Comparison) or parsed.key not in values:
        return None
    return values[parsed.key].checked(parsed, question)


def _comparisons(answer: str) -> list[Any] | None:
    """Return the proposed comparisons, unchecked, of the first JSON in an answer; None for none."""
    text = without_thoughts(answer[:MAX_ANSWER_CHARACTERS])
    start = next((at for at, character in enumerate(text) if character in "[{"), None)
    if start is None:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("filters", [value])
    return value[:MAX_COMPARISONS] if isinstance(value, list) else None


def _typed(value: Scalar, kind: Kind) -> Scalar | None:
    """Return a value as one of this kind, None if it is of another."""
    if kind == "boolean":
        named = {"true": True, "false": False}
        return value if isinstance(value, bool) else named.get(str(value).casefold())
    if kind == "number":
        return _number(value)
    if not isinstance(value, str):
        return None
    return value if kind == "text" or _DATE.fullmatch(value) else None


def _number(value: Scalar) -> Scalar | None:
    if not isinstance(value, str):
        return None if isinstance(value, bool) else value
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else None


def _folded(value: Scalar) -> Scalar:
    return value.casefold() if isinstance(value, str) else value


class _ValueCache:
    """The values of keys, for as long as a vector DB has the same number of chunks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read: OrderedDict[Any, tuple[float, dict[str, KeyValues]]] = OrderedDict()

    async def of(
        self, indexes: Sequence[EmbeddingIndex], keys: Sequence[str]
    ) -> dict[str, KeyValues]:
        """Return by key the values in chunks that the caller can read; a key without is absent."""
        counts = await run_all(index.count() for index in indexes)
        scopes = zip(indexes, counts, strict=True)
        entry = tuple(keys), tuple(_scope(index, count) for index, count in scopes)
        read, values = self._read.get(entry, (0.0, None))
        if values is None or self._clock() - read > CACHE_SECONDS:
            values = await _values_of(indexes, sum(counts), keys)
            self._read[entry] = self._clock(), values
            if len(self._read) > MAX_CACHED:
                self._read.popitem(last=False)
        return values


_cache = _ValueCache()


def _scope(index: EmbeddingIndex, count: int) -> tuple[Any, ...]:
    """Return a value that differs if the readable chunks of an index may differ."""
    vector_db, principal = index.vector_db, index.principal
    readable = principal.reads_all or principal.tokens()
    return vector_db.installation, vector_db.key, vector_db.built_at, readable, count


async def _values_of(
    indexes: Sequence[EmbeddingIndex], count: int, keys: Sequence[str]
) -> dict[str, KeyValues]:
    limit = max(MAX_SAMPLED // len(indexes), 1)
    sampled = await run_all(_sampled(index, limit, keys) for index in indexes)
    is_whole = sum(size for size, _ in sampled) >= count
    share = MAX_VALUES_CHARACTERS // len(keys)
    values = {}
    for key in keys:
        counts = Counter[_Value]()
        for _, counted in sampled:
            counts.update(counted[key])
        if counts:
            values[key] = _key_values(key, counts, is_whole, share)
    return values


async def _sampled(
    index: EmbeddingIndex, limit: int, keys: Sequence[str]
) -> tuple[int, dict[str, Counter[_Value]]]:
    """Return the number of sampled chunks, and by key the count of each (kind, value)."""
    ids = await index.chunk_ids(limit=limit)
    chunks = await index.get_chunks(ids)
    counts: dict[str, Counter[_Value]] = {
        key: Counter(
            (kind_of(value), value)
            for chunk in chunks
            for value in elements(chunk.metadata.get(key))
        )
        for key in keys
    }
    return len(chunks), counts


def _key_values(key: str, counts: Counter[_Value], is_whole: bool, characters: int) -> KeyValues:
    kinds = Counter[str]()
    for (kind, _), count in counts.items():
        kinds[kind] += count
    [(chosen, _)] = kinds.most_common(1)
    values = [value for (kind, value), _ in counts.most_common() if kind == chosen]
    listed = list(_short(values, characters))
    is_complete = is_whole and len(listed) == len(values)
    if chosen == "boolean":
        return KeyValues(key, "boolean", tuple(listed), is_complete=is_complete)
    if chosen == "number" or all(_DATE.fullmatch(str(value)) for value in values):
        ends = min(values), max(values)
        kind_: Kind = "number" if chosen == "number" else "date"
        return KeyValues(key, kind_, tuple(listed), is_complete, *ends)
    return KeyValues(key, "text", tuple(listed), is_complete)


def _short(values: Iterable[Scalar], characters: int) -> Iterator[Scalar]:
    """Yield the first values that fit into a prompt."""
    for number, value in enumerate(values):
        if len(str(value)) > MAX_VALUE_CHARACTERS:
            continue
        characters -= len(str(value)) + 4
        if characters < 0 or number >= MAX_LISTED:
            return
        yield value
