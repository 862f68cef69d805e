"""How fast is it? Every backend on the same data, in turn, each in a process of its own.

    corral bench speed --backends all-inline --sizes 1k,10k --concurrency 1,4,16 --filters 1%,50%

All systems are filled first, a tenth at a time in turn, then asked in rounds: every cell (mode,
filter, concurrency) on every system, one after the other, before the next round begins. A machine's
speed drifts, so ratios to the baseline are made within a round, and their median is shown. Warm-up
questions come first and do not count; their answers say whether the system answers rightly at all.
"""

from __future__ import annotations

import time

from corral.api.errors import InvalidRequest
from corral.bench.report.environment import begin_report
from corral.bench.report.report import Report, write_report
from corral.bench.speed.load_plan import Finished, joined
from corral.bench.speed.plan import SpeedPlan
from corral.bench.speed.unit import Advance, Unit


async def run_speed(plan: SpeedPlan, advance: Advance = lambda units, work: None) -> Report:
    """Measure everything that is planned and return the report, which `plan.out` then holds.

    The report is written after every unit, a data set at one size; a run that is resumed takes
    finished units over, and begins interrupted ones anew, since what was stored is gone.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency, ProviderError: Judged data could not be embedded.
    """
    report = begin_report(plan.command, plan.seed, plan.requires()).model_copy(
        update={"baseline": plan.baseline, "embedding_model": plan.model}
    )
    finished = Finished(plan.out, resume=plan.resume)
    ends = time.monotonic() + (plan.max_seconds or float("inf"))
    for source, served in plan.units():
        key = plan.key(source, served=served)
        part = finished.find(key)
        if part is None:
            unit = Unit(plan, source, served, ends, advance)
            part = await unit.measure(begin_report(plan.command, plan.seed))
            if not any(failure.stage == "budget" for failure in part.failures):
                finished.keep(key, part)
        else:
            advance(0, round(plan.seconds(source, served=served) * 100))
        report = joined(report, part)
        write_report(report, plan.out)
        advance(1, 0)
    if plan.max_seconds is not None and not report.speed and time.monotonic() > ends:
        raise InvalidRequest(
            f"--max-seconds {plan.max_seconds:g} was too small for one measurement.",
            field="max_seconds",
        )
    report = report.done()
    write_report(report, plan.out)
    return report
