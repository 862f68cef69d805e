"""Combines reports of one machine, such as quality and speed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.bench.report.report import Report
from corral.bench.report.rows import DataSet, Row

ONE_OF = ("seed", "corral_version", "python", "embedding_model", "embedding_dimension")
"""Fields that occur once in a report; reports that differ in one cannot be combined."""


def combined(parts: Sequence[tuple[Path, Report]], folder: Path) -> Report:
    """Return one report with the rows of all; a single report is returned unchanged.

    Different data sets with the same name get a number: `synthetic-1k (2)`; a note says so. The
    paths of runs are made relative to the new folder. If thread settings differ, a note lists them
    by command.

    Args:
        parts: Each report with the folder that it is in.
        folder: Folder of the new report.

    Raises:
        InvalidRequest: They have different machines, versions, seeds or embedding models, or share
            a row.
    """
    reports = [report for _, report in parts]
    if len(reports) == 1:
        return reports[0]
    _check_alike(reports)
    sets: dict[str, DataSet] = {}
    rows: list[Row] = []
    notes = [*_thread_notes(reports)]
    for home, report in parts:
        renamed, said = _joined_sets(sets, report.data_sets)
        others = (row for row in report.rows if not isinstance(row, DataSet))
        rows += [_moved(row, renamed, home, folder) for row in others]
        notes += [*report.notes, *said]
    ends = [report.finished for report in reports]
    whole = reports[0].model_copy(
        update={
            "command": " && ".join(dict.fromkeys(report.command for report in reports)),
            "started": min(report.started for report in reports),
            "finished": None if None in ends else max(end for end in ends if end),
            "packages": {k: v for report in reports for k, v in report.packages.items()},
            "hardware": reports[0].hardware.model_copy(update={"threads": _threads(reports)}),
            "baseline": ", ".join(dict.fromkeys(r.baseline for r in reports if r.baseline)) or None,
            **{name: _one(reports, name) for name in ONE_OF},
            **dict.fromkeys(("quality", "answers", "builds", "speed", "tune", "failures"), ()),
            "data_sets": tuple(sets.values()),
            "notes": tuple(dict.fromkeys(notes)),
        }
    )
    whole = whole.with_rows(*rows)
    _check_rows(whole)
    return whole


def _one(reports: Sequence[Report], name: str) -> Any:
    """Return the common value of the reports that have one."""
    return next((v for r in reports if (v := getattr(r, name)) is not None), None)


def _check_alike(reports: Sequence[Report]) -> None:
    known = [report.hardware.model_copy(update={"threads": {}}) for report in reports]
    if any(one != known[0] for one in known):
        raise InvalidRequest(
            "The reports are from different machines; a report covers one machine.",
            hint="To see what differs, use `corral bench compare`.",
        )
    for name in ONE_OF:
        values = dict.fromkeys(v for r in reports if (v := getattr(r, name)) is not None)
        if len(values) > 1:
            raise InvalidRequest(
                f"The reports differ in {name}: {', '.join(map(str, values))}.", field=name
            )


def _check_rows(report: Report) -> None:
    counts = Counter(row.name for _, row in report.named)
    twice = [name for name, times in counts.items() if times > 1]
    if twice:
        raise InvalidRequest(
            f"{len(twice)} rows are in two of the reports, the first {twice[0]!r}.",
            hint="Pass each run once, and only one of two runs that measured the same.",
        )


def _joined_sets(
    known: dict[str, DataSet], found: Iterable[DataSet]
) -> tuple[dict[str, str], list[str]]:
    """Add a report's data sets; return new names for conflicting ones, and notes."""
    renamed, notes = {}, []
    for data in found:
        name, number = data.name, 1
        while name in known and not _same(known[name], data):
            number += 1
            name = f"{data.name} ({number})"
        if number > 1:
            renamed[data.name] = name
            notes.append(f"{name} is not the same data as {data.name}; both had that name.")
        known[name] = _richer(known.get(name, data), data).model_copy(update={"name": name})
    return renamed, notes


def _same(one: DataSet, other: DataSet) -> bool:
    return (one.sha256, one.documents) == (other.sha256, other.documents)


def _richer(one: DataSet, other: DataSet) -> DataSet:
    """Return the description with more judgements (a quality run's), with the excerpts of both."""
    found = one if one.judgements >= other.judgements else other
    return found.model_copy(update={"excerpts": {**one.excerpts, **other.excerpts}})


def _moved(row: Row, renamed: dict[str, str], home: Path, folder: Path) -> Row:
    """Return a row with the new name of its data set and the new path of its run file."""
    update: dict[str, Any] = {}
    data_set: str | None = getattr(row, "data_set", None)
    if data_set is not None:
        update["data_set"] = renamed.get(data_set, data_set)
    for name in ("run_file", "answers_file"):
        file = getattr(row, name, None)
        if file is not None:
            update[name] = Path(os.path.relpath(home / file, folder)).as_posix()
    return row.model_copy(update=update)


def _threads(reports: Sequence[Report]) -> dict[str, str]:
    """Return the thread settings that are equal in all reports."""
    first, *others = [report.hardware.threads for report in reports]
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }


def _thread_notes(reports: Sequence[Report]) -> Iterable[str]:
    common = _threads(reports)
    for report in reports:
        own = {k: v for k, v in report.hardware.threads.items() if k not in common}
        if own:
            said = ", ".join(f"{name}={value}" for name, value in own.items())
            yield f"{said} in: {report.command}"
