"""Judged questions of vector DBs: questions, and a grade for each judged chunk.

A vector DB has a few sets with names. A set belongs to one registration: it is deleted with the
vector DB, and a later registration of the same name does not inherit it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, InvalidRequest, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.stack.vector_db_table import AREA, at, stored_in
from corral.providers.state.state import AnyRow, State, upsert
from corral.providers.state.tables import JUDGED_QUESTIONS, JUDGED_SETS

MAX_SETS = 20
"""Sets of a vector DB."""
MAX_QUESTIONS = 1000
"""Questions of a set."""
MAX_GRADES = 100
"""Judged chunks of a question."""

_SETS, _QUESTIONS = JUDGED_SETS.c, JUDGED_QUESTIONS.c


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A set of judged questions.

    Attributes:
        name: Unique in its vector DB.
        made_at: Unix seconds.
    """

    name: str
    made_at: float


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question with its judgments.

    Attributes:
        number: Its place in the order of insertion.
        key: An id, made from the text: the same question has the same in every set.
        text: The question.
        grades: By chunk id: 0 for a chunk that does not answer it, more for one that does.
        suggested: True if it was made from a chunk, not asked by a person.
    """

    number: int
    key: str
    text: str
    grades: Mapping[str, int]
    suggested: bool = False

    @property
    def relevant(self) -> dict[str, int]:
        """The grades of the chunks that answer the question."""
        return {chunk_id: grade for chunk_id, grade in self.grades.items() if grade > 0}


class JudgedSets:
    """The judged questions of all vector DBs, shared safely by tasks, processes and machines.

    Args:
        state: The tables.
    """

    def __init__(self, state: State) -> None:
        self._area = state.area(AREA, cached=True)

    async def sets(self, vector_db: VectorDB) -> list[JudgedSet]:
        """Return the sets of a vector DB by name."""
        query = select(_SETS.name, _SETS.made_at).where(_of(vector_db)).order_by(_SETS.name)
        return [JudgedSet(*row) for row in await self._area.read(query)]

    async def create(self, vector_db: VectorDB, name: str) -> JudgedSet:
        """Create an empty set.

        Raises:
            Conflict: The vector DB has a set with this name, or `MAX_SETS` sets.
            NotFound: The vector DB was deleted.
        """
        made = JudgedSet(name, time.time())

        def create(connection: Connection) -> None:
            if _find(connection, vector_db, name) is not None:
                raise Conflict(
                    f"Vector DB {vector_db.identifier!r} has a set of judgments {name!r}.",
                    field="name",
                )
            _create(connection, vector_db, made)

        await self._area.write(create)
        return made

    async def remove(self, vector_db: VectorDB, name: str) -> None:
        """Delete a set with its questions.

        Raises:
            NotFound: The vector DB has no such set.
        """

        def remove(connection: Connection) -> None:
            number = _find(connection, vector_db, name)
            if number is None:
                raise NotFound(
                    f"Vector DB {vector_db.identifier!r} has no set of judgments {name!r}.",
                    hint="GET /v1/judgments lists them.",
                    field="name",
                )
            connection.execute(delete(JUDGED_QUESTIONS).where(_QUESTIONS.judged_set == number))
            connection.execute(delete(JUDGED_SETS).where(_SETS.number == number))

        await self._area.write(remove)

    async def questions(
        self, vector_db: VectorDB, name: str, after: int = 0, limit: int = MAX_QUESTIONS
    ) -> list[JudgedQuestion]:
        """Return questions of a set, the first judged first; none if the set does not exist.

        Args:
            after: `number` of the last question before them.
        """
        query = (
            select(JUDGED_QUESTIONS)
            .join(JUDGED_SETS, _SETS.number == _QUESTIONS.judged_set)
            .where(_of(vector_db), _SETS.name == name, _QUESTIONS.number > after)
            .order_by(_QUESTIONS.number)
            .limit(limit)
        )
        return [_question(row) for row in await self._area.read(query)]

    async def question(self, vector_db: VectorDB, name: str, text: str) -> JudgedQuestion | None:
        """Return a question of a set; None if it, or the set, does not exist."""
        query = (
            select(JUDGED_QUESTIONS)
            .join(JUDGED_SETS, _SETS.number == _QUESTIONS.judged_set)
            .where(_of(vector_db), _SETS.name == name, _QUESTIONS.key == key_of(text))
        )
        rows = await self._area.read(query)
        return _question(rows[0]) if rows else None

    async def count(self, vector_db: VectorDB, name: str) -> int:
        """Return the number of questions of a set; 0 if the vector DB has no such set."""
        query = (
            select(func.count())
            .select_from(JUDGED_QUESTIONS)
            .join(JUDGED_SETS, _SETS.number == _QUESTIONS.judged_set)
            .where(_of(vector_db), _SETS.name == name)
        )
        [(count,)] = await self._area.read(query)
        return int(count)

    async def judge(
        self,
        vector_db: VectorDB,
        name: str,
        text: str,
        grades: Mapping[str, int | None],
        *,
        suggested: bool = False,
    ) -> JudgedQuestion | None:
        """Change the grades of chunks for a question, and return it.

        The set is created if it does not exist. A question without grades is deleted.

        Args:
            text: The question; added to the set if it is new.
            grades: New grades by chunk id; None removes one.
            suggested: True if a new question was made from a chunk.

        Raises:
            NotFound: The vector DB was deleted.
            Conflict: The set would have more than `MAX_QUESTIONS`, or the vector DB more than
                `MAX_SETS`.
            InvalidRequest: The question would have more than `MAX_GRADES`.
        """
        key = key_of(text)

        def judge(connection: Connection) -> JudgedQuestion | None:
            number = _find(connection, vector_db, name)
            if number is None:
                number = _create(connection, vector_db, JudgedSet(name, time.time()))
            own = and_(_QUESTIONS.judged_set == number, _QUESTIONS.key == key)
            row = connection.execute(select(JUDGED_QUESTIONS).where(own)).one_or_none()
            changed = {**(json.loads(row.grades) if row else {}), **grades}
            graded = {chunk_id: grade for chunk_id, grade in changed.items() if grade is not None}
            if not graded:
                connection.execute(delete(JUDGED_QUESTIONS).where(own))
                return None
            if len(graded) > MAX_GRADES:
                raise InvalidRequest(
                    f"A question has at most {MAX_GRADES} judged chunks (got {len(graded)}).",
                    field="grades",
                )
            if row is None:
                _check_space(connection, number, name)
            values = {
                "judged_set": number,
                "key": key,
                "question": text,
                "grades": json.dumps(graded),
                "suggested": int(suggested),
                "changed_at": time.time(),
            }
            changing = ("grades", "changed_at")
            keys = ("judged_set", "key")
            upsert(connection, JUDGED_QUESTIONS, [values], *changing, keys=keys)
            return _question(connection.execute(select(JUDGED_QUESTIONS).where(own)).one())

        return await self._area.write(judge)


async def readable(
    index: EmbeddingIndex, questions: Sequence[JudgedQuestion]
) -> list[JudgedQuestion]:
    """Return the questions with the grades of chunks that a view of the index can read.

    Questions without such a chunk are left out: their texts may quote it.

    Args:
        index: The principal's view.
    """
    ids = list(dict.fromkeys(chunk_id for each in questions for chunk_id in each.grades))
    held = {chunk.chunk_id for chunk in await index.get_chunks(ids)}
    visible = []
    for each in questions:
        grades = {chunk_id: grade for chunk_id, grade in each.grades.items() if chunk_id in held}
        if grades:
            visible.append(replace(each, grades=grades))
    return visible


def key_of(text: str) -> str:
    """Return the id of a question."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def _of(vector_db: VectorDB) -> ColumnElement[bool]:
    return at(JUDGED_SETS, vector_db.key) & (_SETS.created_at == vector_db.created_at)


def _check_registered(connection: Connection, vector_db: VectorDB) -> None:
    stored = stored_in(connection, vector_db.key)
    if stored is None or stored.created_at != vector_db.created_at:
        raise NotFound(f"There is no vector DB {vector_db.identifier!r}.", field="vector_db_id")


def _find(connection: Connection, vector_db: VectorDB, name: str) -> int | None:
    """Return the number of a set, or None."""
    return connection.scalar(select(_SETS.number).where(_of(vector_db), _SETS.name == name))


def _create(connection: Connection, vector_db: VectorDB, made: JudgedSet) -> int:
    """Insert a set and return its number."""
    tenant, identifier = vector_db.key
    _check_registered(connection, vector_db)
    count = connection.scalar(select(func.count()).where(_of(vector_db)))
    if int(count or 0) >= MAX_SETS:
        raise Conflict(
            f"Vector DB {identifier!r} has {MAX_SETS} sets of judgments, the maximum.",
            hint="Delete one first.",
            field="name",
        )
    row = {
        "tenant": tenant,
        "identifier": identifier,
        "created_at": vector_db.created_at,
        "name": made.name,
        "made_at": made.made_at,
    }
    inserted = connection.execute(insert(JUDGED_SETS).returning(_SETS.number), row)
    return int(inserted.scalar_one())


def _check_space(connection: Connection, number: int, name: str) -> None:
    query = select(func.count()).where(_QUESTIONS.judged_set == number)
    if int(connection.scalar(query) or 0) >= MAX_QUESTIONS:
        raise Conflict(
            f"The set {name!r} has {MAX_QUESTIONS} questions, the maximum.",
            hint="Judge into another set.",
            field="name",
        )


def _question(row: AnyRow) -> JudgedQuestion:
    grades = json.loads(row.grades)
    return JudgedQuestion(row.number, row.key, row.question, grades, bool(row.suggested))
