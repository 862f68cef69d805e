"""Judged questions of vector DBs: list, judge, suggest, export."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, field_validator

from corral.api.errors import InvalidRequest
from corral.api.wire import Identifier, Strict
from corral.providers.copying.beir import beir_of
from corral.providers.rag.suggestions import MAX_SUGGESTIONS, suggest
from corral.providers.stack.judged_sets import (
    MAX_GRADES,
    JudgedQuestion,
    readable,
)
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.access.roles import ADMIN, READER
from corral.server.errors import ERRORS
from corral.server.routing import NotFoundRoute, StackOf

MAX_QUESTION_CHARACTERS = 2000
MAX_GRADE = 10
MAX_PAGE = 100
MAX_SEED = 2**31

router = APIRouter(
    prefix="/v1/judgments", tags=["Evaluation"], route_class=NotFoundRoute, responses=ERRORS
)

SetName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w.-]+( [\w.-]+)*$")]
"""Letters, digits, `_`, `.` and `-`, with single spaces between words."""
OfVectorDB = Annotated[Identifier, Query(description="The vector DB.")]
OfSet = Annotated[SetName, Query(description="Name of the set.")]
After = Annotated[int, Query(ge=0, description="`last` of the previous page; 0: the beginning.")]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum number of questions.")]
Grade = Annotated[int, Field(ge=0, le=MAX_GRADE)]


class SetRequest(Strict):
    """A set of judged questions of a vector DB."""

    vector_db_id: Identifier
    name: SetName = Field(
        description="Letters, digits, `_`, `.` and `-`, with single spaces between words."
    )


class QuestionRequest(SetRequest):
    """A question of a set."""

    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS)

    @field_validator("question")
    @classmethod
    def _has_text(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("must have text")
        return question.strip()


class JudgeRequest(QuestionRequest):
    """Judgments of chunks for a question."""

    grades: dict[str, Grade | None] = Field(
        min_length=1,
        max_length=MAX_GRADES,
        description=f"By chunk id: 0: does not answer the question; 1 to {MAX_GRADE}: answers it, "
        "the higher the better; null takes a judgment back.",
    )
    suggested: bool = Field(
        default=False, description="Whether the question was suggested, not asked by a person."
    )


class SuggestRequest(SetRequest):
    """Questions to suggest."""

    count: int = Field(default=10, ge=1, le=MAX_SUGGESTIONS)
    seed: int | None = Field(
        default=None, ge=0, lt=MAX_SEED, description="Chooses the chunks; null: at random."
    )
    use_model: bool = Field(
        default=True,
        description="Whether a language model writes the questions if one is configured. Otherwise "
        "they are headings and the beginnings of sentences.",
    )


class SetInfo(BaseModel):
    """A set of judged questions."""

    name: str
    made_at: float = Field(description="Unix seconds.")


class SetList(BaseModel):
    """The sets of a vector DB, by name."""

    data: list[SetInfo]


class QuestionInfo(BaseModel):
    """A judged question."""

    key: str = Field(description="Its id, `_id` in exported files.")
    question: str
    grades: dict[str, int] = Field(description="By chunk id; 0: does not answer the question.")
    suggested: bool

    @classmethod
    def of(cls, question: JudgedQuestion) -> QuestionInfo:
        """Convert a question to the wire format."""
        return cls(
            key=question.key,
            question=question.text,
            grades=dict(question.grades),
            suggested=question.suggested,
        )


class QuestionList(BaseModel):
    """A page of judged questions, the first judged first."""

    data: list[QuestionInfo]
    has_more: bool
    last: int = Field(description="`after` of the next page.")
    total: int | None = Field(
        description="Questions of the set; null for callers who do not read every document."
    )


class Judged(BaseModel):
    """A question with its judgments."""

    question: QuestionInfo | None = Field(description="null: there is no judgment of it.")


class SuggestedQuestion(BaseModel):
    """A question that a stored chunk answers."""

    question: str
    chunk_id: str
    document_id: str | None
    content: str = Field(description="The chunk's text.")


class SuggestionList(BaseModel):
    """Suggested questions; they are not stored."""

    data: list[SuggestedQuestion]
    model: str | None = Field(description="The language model that wrote them; null: none did.")


class DeletedSet(BaseModel):
    """A deleted set."""

    name: str
    deleted: bool = True


@router.get("", summary="List the sets of judgments")
async def list_sets(vector_db_id: OfVectorDB, stack: StackOf) -> SetList:
    """Return the sets of a vector DB, by name."""
    audit.current().names(vector_db_id)
    sets = await stack.judged.sets(await stack.vector_db(vector_db_id))
    return SetList(data=[SetInfo(name=each.name, made_at=each.made_at) for each in sets])


@router.post("", summary="Create a set of judgments")
async def create_set(request: SetRequest, stack: StackOf) -> SetInfo:
    """Create an empty set of judged questions for a vector DB, which is deleted with it."""
    vector_db = await stack.vector_db(request.vector_db_id)
    made = await stack.judged.create(vector_db, request.name)
    return SetInfo(name=made.name, made_at=made.made_at)


@router.post("/delete", summary="Delete a set of judgments", dependencies=[ADMIN])
async def delete_set(request: SetRequest, stack: StackOf) -> DeletedSet:
    """Delete a set with the judgments of all users."""
    await stack.judged.remove(await stack.vector_db(request.vector_db_id), request.name)
    return DeletedSet(name=request.name)


@router.get("/questions", summary="List judged questions")
async def list_questions(
    vector_db_id: OfVectorDB, name: OfSet, stack: StackOf, after: After = 0, limit: PageSize = 50
) -> QuestionList:
    """Return judged questions, page by page.

    Callers see the judgments of chunks that they can read, and no question without one. Admins
    also see judgments of chunks that are no longer stored.
    """
    audit.current().names(vector_db_id)
    vector_db = await stack.vector_db(vector_db_id)
    questions = await stack.judged.questions(vector_db, name, after, limit + 1)
    page = questions[:limit]
    total = await stack.judged.count(vector_db, name) if stack.principal.reads_all else None
    return QuestionList(
        data=[QuestionInfo.of(each) for each in await _seen(stack, vector_db_id, page)],
        has_more=len(questions) > limit,
        last=page[-1].number if page else after,
        total=total,
    )


@router.post("/questions/show", summary="Show a judged question", dependencies=[READER])
async def show_question(request: QuestionRequest, stack: StackOf) -> Judged:
    """Return a question with the judgments that the caller may see."""
    vector_db = await stack.vector_db(request.vector_db_id)
    judged = await stack.judged.question(vector_db, request.name, request.question)
    return await _judged(stack, request.vector_db_id, judged)


@router.post("/questions", summary="Judge chunks for a question")
async def judge(request: JudgeRequest, stack: StackOf) -> Judged:
    """Add a question to a set, or change its judgments; the set is created if it does not exist.

    A question without judgments is deleted. Only admins can take back judgments of chunks that are
    no longer stored.
    """
    vector_db = await stack.vector_db(request.vector_db_id)
    new = [key for key, grade in request.grades.items() if grade is not None]
    ids = new if stack.principal.reads_all else list(request.grades)
    index = await stack.index(request.vector_db_id)
    held = {chunk.chunk_id for chunk in await index.get_chunks(ids)}
    for chunk_id in ids:
        if chunk_id not in held:
            raise InvalidRequest(
                f"Vector DB {request.vector_db_id!r} has no chunk {chunk_id!r}.",
                hint="Judge chunks that a query returned.",
                field="grades",
            )
    judged = await stack.judged.judge(
        vector_db, request.name, request.question, request.grades, suggested=request.suggested
    )
    return await _judged(stack, request.vector_db_id, judged)


@router.post("/suggest", summary="Suggest questions", dependencies=[READER])
async def suggest_questions(request: SuggestRequest, stack: StackOf) -> SuggestionList:
    """Return questions that stored chunks answer, and store none.

    A language model writes them if one is configured. Judge them with `suggested`: a tuning says
    that such questions favor keyword search.
    """
    vector_db = await stack.vector_db(request.vector_db_id)
    judged = await stack.judged.questions(vector_db, request.name)
    model = _model(stack) if request.use_model else None
    suggestions = await suggest(
        await stack.index(request.vector_db_id),
        request.count,
        seed=random.randrange(MAX_SEED) if request.seed is None else request.seed,  # noqa: S311 - no secret
        models=stack,
        model=model,
        excluded={each.text for each in judged},
    )
    chunks = [each.chunk for each in suggestions]
    audit.current().returns(request.vector_db_id, [chunk.chunk_id for chunk in chunks])
    data = [
        SuggestedQuestion(
            question=each.question[:MAX_QUESTION_CHARACTERS],
            chunk_id=each.chunk.chunk_id,
            document_id=each.chunk.document_id,
            content=each.chunk.content,
        )
        for each in suggestions
    ]
    return SuggestionList(data=data, model=model)


@router.get(
    "/export",
    summary="Export a set of judgments",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {}}, "description": "The files."}},
)
async def export(vector_db_id: OfVectorDB, name: OfSet, stack: StackOf) -> StreamingResponse:
    """Stream a zip file in BEIR's layout: `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`.

    Unpack it into a folder for `corral bench`. It has the chunks that the caller can read.
    """
    audit.current().names(vector_db_id)
    vector_db = await stack.vector_db(vector_db_id)
    index = await stack.index(vector_db_id)
    questions = await readable(index, await stack.judged.questions(vector_db, name))
    pieces = beir_of(index, questions)
    first = await anext(pieces)  # an error at the start becomes an error response

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(content(), media_type="application/zip")


async def _judged(stack: Stack, vector_db_id: str, judged: JudgedQuestion | None) -> Judged:
    visible = [] if judged is None else await _seen(stack, vector_db_id, [judged])
    return Judged(question=next(map(QuestionInfo.of, visible), None))


async def _seen(
    stack: Stack, vector_db_id: str, questions: list[JudgedQuestion]
) -> list[JudgedQuestion]:
    """Return the questions and judgments that the caller may see."""
    if stack.principal.reads_all:
        return questions
    return await readable(await stack.index(vector_db_id), questions)


def _model(stack: Stack) -> str | None:
    """Return the language model that writes questions; None if none is configured."""
    models = [name for _, name in stack.inference_models()]
    chosen = stack.config.answers.model
    return chosen if chosen in models else next(iter(models), None)
