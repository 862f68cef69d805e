"""Tunings over HTTP, for the console: start, watch, cancel, apply, take back.

The server finds these routes by the entry point `corral.routers`. What tunes is imported late.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from corral.api.errors import Conflict
from corral.api.vector_dbs import VectorDB
from corral.api.wire import Identifier, Strict
from corral.bench.options import commands
from corral.bench.tuning.findings import TuningReport
from corral.providers.stack.judged_sets import readable
from corral.providers.stack.registrations import with_search
from corral.providers.stack.tunings import Progress, Status, Tuning
from corral.server.access import audit
from corral.server.access.roles import ADMIN, WRITER
from corral.server.errors import ERRORS
from corral.server.native.judgments import MAX_SEED, SetRequest
from corral.server.routers import Application
from corral.server.routing import NotFoundRoute, StackOf

router = APIRouter(
    prefix="/v1/tunings",
    tags=["Evaluation"],
    route_class=NotFoundRoute,
    responses=ERRORS,
    dependencies=[WRITER],
)

OfVectorDB = Annotated[Identifier, Query(description="The vector DB.")]
TuningId = Annotated[str, Path(max_length=64, description="`tuning_id`.")]


class TuneRequest(SetRequest):
    """A tuning with a set of judged questions."""

    seed: int = Field(
        default=0, ge=0, lt=MAX_SEED, description="Cuts the questions into two halves."
    )


class OfTuning(Strict):
    """The vector DB of a tuning."""

    vector_db_id: Identifier


class TuningInfo(BaseModel):
    """A tuning of a vector DB."""

    tuning_id: str
    name: str = Field(description="The set of judgments.")
    user: str = Field(description="The user that started it.")
    status: Status
    done: int = Field(description="Steps so far.")
    total: int = Field(description="Estimated steps; 0: not begun.")
    error: str = Field(description="Why it failed; empty otherwise.")
    started_at: float = Field(description="Unix seconds.")
    ended_at: float | None
    applied: bool = Field(description="Whether the recommended settings were applied.")
    report: TuningReport | None = Field(description="null: not completed.")


class TuningList(BaseModel):
    """The tunings of a vector DB, the newest first."""

    data: list[TuningInfo]


class Changed(BaseModel):
    """A tuning, and the vector DB with its settings now."""

    tuning: TuningInfo
    vector_db: VectorDB


@router.get("", summary="List the tunings")
async def list_all(vector_db_id: OfVectorDB, stack: StackOf) -> TuningList:
    """Return the newest tunings of a vector DB, at most 20."""
    audit.current().names(vector_db_id)
    tunings = await stack.tunings.all(await stack.vector_db(vector_db_id))
    return TuningList(data=[_info(each) for each in tunings])


@router.post("", summary="Start a tuning")
async def start(request: TuneRequest, stack: StackOf) -> TuningInfo:
    """Start a tuning in the background; it changes nothing until it is applied.

    Half of the questions choose among about a hundred settings, the other half judges the choice.
    It uses the judgments that the caller may see, of at most 300 questions, and needs 10.
    """
    tuning = commands("tuning.judged")
    vector_db = await stack.vector_db(request.vector_db_id)
    judged = await readable(
        await stack.index(request.vector_db_id),
        await stack.judged.questions(vector_db, request.name),
    )
    questions = tuning.questions_of(judged, f"The set {request.name!r}", request.seed)

    async def work(progress: Progress) -> Any:
        return await tuning.tune_judged(
            stack, request.vector_db_id, questions, request.seed, progress
        )

    user = stack.principal.user
    return _info(await stack.tunings.start(vector_db, request.name, user, work))


@router.get("/{tuning_id}", summary="Show a tuning")
async def retrieve(tuning_id: TuningId, vector_db_id: OfVectorDB, stack: StackOf) -> TuningInfo:
    """Return a tuning with its progress, or with its report."""
    audit.current().names(vector_db_id)
    vector_db = await stack.vector_db(vector_db_id)
    return _info(await stack.tunings.get(vector_db, tuning_id))


@router.post("/{tuning_id}/cancel", summary="Cancel a tuning")
async def cancel(tuning_id: TuningId, request: OfTuning, stack: StackOf) -> TuningInfo:
    """Ask a tuning to end; one that has ended stays as it is."""
    vector_db = await stack.vector_db(request.vector_db_id)
    return _info(await stack.tunings.cancel(vector_db, tuning_id))


@router.post("/{tuning_id}/apply", summary="Apply a recommendation", dependencies=[ADMIN])
async def apply(tuning_id: TuningId, request: OfTuning, stack: StackOf) -> Changed:
    """Change the registered search to the recommended one, and keep the settings from before.

    If the tuning recommends to stay, or did not complete, the answer is a 409.
    """
    vector_db = await stack.vector_db(request.vector_db_id)
    tuning = await stack.tunings.get(vector_db, tuning_id)
    settings = _recommended(tuning)
    if not settings:
        raise Conflict(
            "This tuning recommends no change.",
            hint="Judge more questions, then tune again.",
            field="tuning_id",
        )
    if tuning.before is None:
        registered = vector_db.model_dump(mode="json", include=set(settings))
        await stack.tunings.note_applied(tuning_id, registered)
        try:
            vector_db = await stack.change_search(request.vector_db_id, settings)
        except BaseException:
            await stack.tunings.note_applied(tuning_id, None)
            raise
    return Changed(tuning=_info(await stack.tunings.get(vector_db, tuning_id)), vector_db=vector_db)


@router.post("/{tuning_id}/undo", summary="Take a recommendation back", dependencies=[ADMIN])
async def undo(tuning_id: TuningId, request: OfTuning, stack: StackOf) -> Changed:
    """Restore the settings from before the recommended ones were applied.

    If the registered search was changed since then, the answer is a 409.
    """
    vector_db = await stack.vector_db(request.vector_db_id)
    tuning = await stack.tunings.get(vector_db, tuning_id)
    if tuning.before is None:
        raise Conflict("This tuning is not applied.", field="tuning_id")
    restored = with_search(vector_db, tuning.before)
    if restored != vector_db:
        if with_search(vector_db, _recommended(tuning)) != vector_db:
            raise Conflict(
                f"The search of {vector_db.identifier!r} was changed after this tuning was "
                "applied.",
                hint="Take back what was applied later first.",
                field="tuning_id",
            )
        vector_db = await stack.change_search(request.vector_db_id, tuning.before)
    await stack.tunings.note_applied(tuning_id, None)
    return Changed(tuning=_info(await stack.tunings.get(vector_db, tuning_id)), vector_db=vector_db)


def _recommended(tuning: Tuning) -> dict[str, Any]:
    """Return the settings to apply; none if the tuning recommends to stay."""
    report = _report(tuning)
    return report.recommended if report else {}


def _info(tuning: Tuning) -> TuningInfo:
    return TuningInfo(
        tuning_id=tuning.tuning_id,
        name=tuning.judged_set,
        user=tuning.user,
        status=tuning.status,
        done=tuning.done,
        total=max(tuning.total, tuning.done),
        error=tuning.error,
        started_at=tuning.started_at,
        ended_at=tuning.ended_at,
        applied=tuning.before is not None,
        report=_report(tuning),
    )


def _report(tuning: Tuning) -> TuningReport | None:
    return None if tuning.report is None else TuningReport.model_validate(tuning.report)


APPLICATION = Application(router)
"""For the entry point."""
