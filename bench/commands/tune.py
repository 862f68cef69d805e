"""What `corral bench tune` does: tune with a progress bar, recommend, keep a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.text import Text

from corral.bench.commands.quality import command_line, new_folder
from corral.bench.report import HTML_NAME, MARKDOWN_NAME, render_html, render_markdown
from corral.bench.report.environment import begin_report
from corral.bench.report.report import REPORT_NAME, write_report
from corral.bench.report.rows import Estimate, TuneSection, TuneTrial
from corral.bench.tuning.run import TunePlan, run_tune
from corral.providers.config import data_home, load_config
from corral.server.command_line import display
from corral.server.command_line.progress import progress

SHOWN = 20


def run(home: Path | None, config: Path | None, *, out: Path | None, **options: Any) -> None:
    """Tune, print the best trials and the recommendation, and write the report.

    Raises:
        CorralError: The plan contradicts itself, or questions, embedder or backend fail.
    """
    folder = home or data_home()
    plan = TunePlan(load_config(config, folder), folder, **options)
    report = begin_report(command_line(), plan.seed)
    section = asyncio.run(run_tune(plan, _watch))
    target = out or new_folder()
    target.mkdir(parents=True, exist_ok=True)
    done = report.with_rows(section).done()
    write_report(done, target / REPORT_NAME)
    (target / MARKDOWN_NAME).write_text(render_markdown(done), encoding="utf-8")
    (target / HTML_NAME).write_text(render_html(done), encoding="utf-8")
    show(section, applied=plan.apply)
    display.show(f"Report: {display.clean(target / HTML_NAME)}")


def _watch(questions: int) -> AbstractContextManager[Callable[[int, int], None]]:
    return progress(questions, questions, work="Asking", things="questions")


def show(section: TuneSection, *, applied: bool) -> None:
    """Print the best trials, what is recommended, and what it is worth."""
    table = display.new_table("tried", "nDCG@10, choosing half>", "judging half>", "all in 5>")
    title = f"{section.data_set} on {section.backend}: {section.n_train} questions choose, "
    table.title, table.title_justify = (
        Text(display.clean(f"{title}{section.n_held_out} judge")),
        "left",
    )
    trials = sorted(section.trials, key=lambda trial: -trial.train.mean)
    judged = [t for t in trials if t.held_out is not None or t.label == section.chosen]
    for trial in judged[:SHOWN]:
        mark = " (recommended)" if trial.label == section.chosen else ""
        display.add_row(
            table, f"{trial.label}{mark}", _said(trial.train), _said(trial.held_out), _share(trial)
        )
    registration = json.dumps(section.registration)
    verb = "Registered" if applied else "Recommended registration"
    lines = (section.statement, *section.notes, f"{verb}: {registration}")
    display.show(table, *(Text(display.clean(line)) for line in lines))


def _share(trial: TuneTrial) -> str:
    """Return the share of questions with everything relevant among their first five."""
    return "-" if trial.complete_at_5 is None else f"{trial.complete_at_5:.3f}"


def _said(found: Estimate | None) -> str:
    return "-" if found is None else f"{found.mean:.4f} [{found.low:.3f}, {found.high:.3f}]"
