"""How fast is it? Every backend on the same data, in turn, each in a process of its own.

    corral bench speed --backends all-inline --sizes 1k,10k --concurrency 1,4,16 --filters 1%,50%

All systems are filled first, a tenth at a time in turn, then asked in rounds: every cell (mode,
filter, concurrency) on every system, one after the other, before the next round begins. A machine's
speed drifts, so ratios to the baseline are made within a round, and their median is shown. Warm-up
questions come first and do not count; their answers say whether the system answers rightly at all.
"""

from __future__ import annotations

from corral.bench.report.environment import begin_report
from corral.bench.report.report import Report
from corral.bench.run import Advance, Finished, Run
from corral.bench.speed.plan import SpeedPlan
from corral.bench.speed.workload import Workload


async def run_speed(plan: SpeedPlan, advance: Advance = lambda units, work: None) -> Report:
    """Measure everything that is planned and return the report, which `plan.out` then holds.

    The report is written after every workload, a data set at one size; a run that is resumed takes
    finished units over, and begins interrupted ones anew, since what was stored is gone.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency, ProviderError: Judged data could not be embedded.
    """
    run = Run(plan, advance, baseline=plan.baseline, embedding_model=plan.model)
    finished = Finished(plan, Report)
    for source, served in plan.units():
        key = plan.key(source, served=served)
        part = finished.find(key)
        if part is None:
            workload = Workload(plan, source, served, run.ends, advance)
            part = await workload.measure(begin_report(plan.command, plan.seed))
            if not any(failure.stage == "budget" for failure in part.failures):
                finished.keep(key, part)
        else:
            advance(0, round(plan.seconds(source, served=served) * 100))
        run.report = _joined(run.report, part)
        run.save()
        advance(1, 0)
    return run.finish(run.report.speed)


def _joined(report: Report, part: Report) -> Report:
    """Return a report with the rows and notes of a finished part."""
    notes = (*report.notes, *(note for note in part.notes if note not in report.notes))
    return report.with_rows(*part.rows).model_copy(update={"notes": notes})
