"""The measuring commands of `corral bench`; `cli` has their options."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode
from corral.bench.answers.run import make_answers_plan, run_answers
from corral.bench.options import commands
from corral.bench.quality.plan import make_plan
from corral.bench.quality.run import run_quality, work_of
from corral.bench.quality.split import SplitPlan, run_split, split_table
from corral.bench.report import HTML_NAME, terminal, write_reports
from corral.bench.report.answer_sections import answer_tables
from corral.bench.report.blocks import Block, Folded
from corral.bench.report.quality_sections import quality_table, tune_table
from corral.bench.report.report import REPORT_NAME, Report, begin_report, write_report
from corral.bench.report.sections import failures_table
from corral.bench.report.speed_sections import build_tables, speed_tables
from corral.bench.report.views import agreement, quality_by_set
from corral.bench.run import refuse_existing
from corral.bench.speed.plan import make_speed_plan
from corral.bench.tuning.run import TunePlan, run_tune
from corral.providers.base.config import data_home, load_config
from corral.server.cli.failures import CommandError
from corral.server.cli.progress import progress

OUT = "corral-bench"
SIZES = "10k"
TRIALS = 20
"""Trials of a tuning that the terminal shows."""


def quality(
    home: Path | None,
    general_config: Path | None,
    data: Sequence[str],
    *,
    languages: Sequence[str],
    **options: Any,
) -> None:
    """Measure quality, show the tables, and fail if a measurement failed.

    Raises:
        CorralError: The plan cannot work, or nothing could be measured in the time given.
        CommandError: Something could not be measured; the report says what.
    """
    plan = make_plan(
        data=data,
        languages=_languages(languages),
        **_common(home, general_config, **options),
    )
    cells, work = work_of(plan)
    with progress(cells, work, work="Measuring", things="cells") as advance:
        report = asyncio.run(run_quality(plan, advance))
    tables = (quality_table(report, name) for name in quality_by_set(report))
    agreeing = (Folded(name, (), said, agrees=True) for name, said in agreement(report).items())
    _finish(report, plan.out, (*tables, *agreeing))


def answers(
    home: Path | None,
    general_config: Path | None,
    *,
    data: Sequence[str],
    vector_db_ids: Sequence[str],
    languages: Sequence[str],
    **options: Any,
) -> None:
    """Measure answers, show the tables, and fail if something could not be measured.

    Raises:
        CorralError: The plan cannot work, or a model or a vector DB is unknown.
        CommandError: Something could not be measured; the report says what.
    """
    plan = make_answers_plan(
        data=list(data),
        vector_db_ids=list(vector_db_ids),
        languages=_languages(languages),
        **_common(home, general_config, resume=False, **options),
    )
    cells = len(plan.sets) * sum(len(modes) for _, modes in plan.systems)
    with progress(cells, plan.work, work="Asking", things="cells") as advance:
        report = asyncio.run(run_answers(plan, advance))
    _finish(report, plan.out, answer_tables(report))


def speed(
    home: Path | None,
    general_config: Path | None,
    *,
    backends: Sequence[str],
    peers: Sequence[str],
    sizes: Sequence[str],
    data: Sequence[str],
    **options: Any,
) -> None:
    """Measure speed, show the tables, and fail if a measurement failed.

    Raises:
        CorralError: The plan cannot work, or nothing could be measured in the time given.
        CommandError: Something could not be measured; the report says what.
    """
    run = commands("speed.run")  # memory is measured with psutil, from the extra `bench`
    plan = make_speed_plan(
        backends=[*backends, *peers],
        sizes=sizes or ([] if data else [SIZES]),
        data=data,
        **_common(home, general_config, **_with_data(data, options)),
    )
    number = len(plan.sources)
    with progress(number, number * plan.work, work="Measuring", things="sizes") as advance:
        report = asyncio.run(run.run_speed(plan, advance))
    tables = (table for _, table in speed_tables(report))
    _finish(report, plan.out, (*build_tables(report), *tables))


def tune(home: Path | None, config: Path | None, *, out: Path | None, **options: Any) -> None:
    """Tune, print the best trials and the recommendation, and write the report.

    Raises:
        CorralError: The plan contradicts itself, or questions, embedder or backend fail.
    """
    folder, target = home or data_home(), out or _new_folder()
    plan = TunePlan(load_config(config, folder), folder, **options)
    refuse_existing(target)
    report = begin_report(_command_line(), plan.seed)
    section, vector_db, data = asyncio.run(run_tune(plan, _watch))
    about = {
        "embedding_model": vector_db.embedding_model,
        "embedding_dimension": vector_db.embedding_dimension,
    }
    report = report.model_copy(update=about).with_rows(data, section).done()
    write_report(report, target / REPORT_NAME)
    written = write_reports(report, target)
    judged = [t for t in section.trials if t.held_out or t.label == section.chosen]
    terminal.show([tune_table(section, judged[:TRIALS])])
    kept = section.chosen == section.registered
    verb = "Registered" if plan.apply else f"Recommended registration{' (as it is)' * kept}"
    registration = f"{verb}: {json.dumps(section.settings)}"
    terminal.line(section.statement, *section.notes, registration, _reports(target, written))


def users(**options: Any) -> bool:
    """Measure a server with many users; return True if the page meets its bound.

    Raises:
        InvalidRequest: A number is below 1, or there is none.
    """
    for name in ("clients", "workers", "rates"):
        if min(options[name], default=1 if name == "rates" else 0) < 1:
            given = ",".join(map(str, options[name]))
            raise InvalidRequest(f"--{name} takes numbers >= 1 (got {given!r}).", field=name)
    measuring = commands("speed.users")
    kept: bool = measuring.run_users(measuring.UsersPlan(**options))
    return kept


def split(
    home: Path | None,
    general_config: Path | None,
    *,
    config: Path | None,
    parts: Sequence[int],
    modes: Sequence[str],
    model: str | None,
    **options: Any,
) -> None:
    """Split judged sets over several vector DBs, and print the change in quality and time.

    Raises:
        CorralError: The plan cannot work, or embedder or backend fail.
    """
    if min(parts) < 2:
        raise InvalidRequest(f"--parts takes numbers >= 2 (got {min(parts)}).", field="parts")
    folder = home or data_home()
    settings = load_config(config or general_config, folder)
    plan = SplitPlan(
        config=settings,
        home=folder,
        parts=parts,
        modes=[SearchMode.parse(name) for name in modes],
        model=model or settings.default_embedding_model,
        **options,
    )
    terminal.show([split_table(asyncio.run(run_split(plan)))])


def _common(
    home: Path | None,
    general_config: Path | None,
    *,
    config: Path | None,
    out: Path | None,
    **options: Any,
) -> dict[str, Any]:
    """Return the arguments of every plan, and the remaining options.

    Raises:
        InvalidRequest: `--resume` without the folder of a run.
    """
    folder = home or data_home()
    if options["resume"] and out is None:
        raise InvalidRequest("--resume needs --out, the folder of the run.", field="resume")
    return {
        "config": load_config(config or general_config, folder),
        "home": folder,
        "out": out or _new_folder(),
        "command": _command_line(),
        **options,
    }


def _with_data(data: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that apply.

    Raises:
        InvalidRequest: An embedding model is given, but seeded data have their own embeddings.
    """
    if options["model"] is not None and not data:
        said = "--embedder needs --data: seeded data bring their embeddings."
        raise InvalidRequest(said, field="embedder")
    return options


def _finish(report: Report, out: Path, blocks: Iterable[Block]) -> None:
    """Write the reports and show everything.

    Raises:
        CommandError: There are failures.
    """
    written = write_reports(report, out)
    terminal.show(blocks)
    if report.failures:
        terminal.show([failures_table(report.failures)])
    terminal.line(*report.notes, _reports(out, written))
    if report.failures:
        count = len(report.failures)
        failures = f"{count} failure{'s' if count > 1 else ''}"
        raise CommandError(f"Not everything could be measured: {failures}.")


def _reports(folder: Path, written: Sequence[Path]) -> str:
    """Return a line with the files of a report, or with the command that adds the missing page."""
    names = [*(path.name for path in reversed(written)), REPORT_NAME]
    page = f"pip install 'corral-rag[bench]', then corral bench report {shlex.quote(str(folder))}"
    hint = "" if HTML_NAME in names else f". For {HTML_NAME}: {page}"
    return f"Reports in {folder}: {', '.join(names)}{hint}"


def _watch(questions: int) -> AbstractContextManager[Callable[[int, int], None]]:
    return progress(questions, questions, work="Asking", things="questions")


def _new_folder() -> Path:
    """Return a new folder for a run without `--out`."""
    return Path(OUT) / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _command_line() -> str:
    """Return the command line for repeating the run."""
    return shlex.join(["corral", *sys.argv[1:]])


def _languages(given: Sequence[str]) -> dict[str, str]:
    """Return languages by name of a set, or under "" for all sets.

    Raises:
        InvalidRequest: A set has two languages, or an empty one.
    """
    found: dict[str, str] = {}
    for each in given:
        name, _, language = each.rpartition("=")
        if not language:
            raise InvalidRequest(
                f"--language does not name a language in {each!r}.", field="language"
            )
        if name in found:
            raise InvalidRequest(f"--language is given twice for {name or 'all'}.")
        found[name] = language
    return found
