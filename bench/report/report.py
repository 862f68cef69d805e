"""`report.json`: the results, data and environment of a benchmark run.

Every figure is a row that names backend, mode and data set, so rows of several runs can be joined.
A backend that failed has a row too (`failures`).
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from corral.api.errors import InvalidRequest
from corral.api.findings import first_finding
from corral.bench.report.rows import (
    AnswerRow,
    BuildRow,
    DataSet,
    Failure,
    Hardware,
    QualityRow,
    Row,
    SpeedRow,
    TuneSection,
)

SCHEMA_VERSION: Final = 2
"""Increased when an older reader would misread a report; not for a new optional field."""

REPORT_NAME = "report.json"


class Report(Row):
    """One run of the suite; `with_rows` and `model_copy` return changed copies."""

    schema_version: Literal[2] = SCHEMA_VERSION
    command: str
    seed: int
    started: datetime
    finished: datetime | None = None
    corral_version: str
    python: str
    packages: dict[str, str]
    hardware: Hardware
    embedding_model: str | None = None
    embedding_dimension: int | None = None
    baseline: str | None = None
    data_sets: tuple[DataSet, ...] = ()
    quality: tuple[QualityRow, ...] = ()
    answers: tuple[AnswerRow, ...] = ()
    builds: tuple[BuildRow, ...] = ()
    speed: tuple[SpeedRow, ...] = ()
    tune: tuple[TuneSection, ...] = ()
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    def with_rows(self, *rows: Row) -> Report:
        """Return the report with these rows added, each to the section of its type.

        Raises:
            TypeError: A row belongs to no section.
        """
        sections: dict[str, tuple[Any, ...]] = {}
        for row in rows:
            name = _SECTIONS.get(type(row))
            if name is None:
                raise TypeError(f"a report has no section for {type(row).__name__}")
            sections[name] = (*sections.get(name, getattr(self, name)), row)
        return self.model_copy(update=sections)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, by section."""
        return tuple(row for name in _SECTIONS.values() for row in getattr(self, name))

    @property
    def named(self) -> list[tuple[str, NamedRow]]:
        """The rows that other reports may have too, each with the name of its section."""
        return [
            *(("quality", row) for row in self.quality),
            *(("answers", row) for row in self.answers),
            *(("speed", row) for row in self.speed),
            *(("builds", row) for row in self.builds),
        ]

    def done(self) -> Report:
        """Return the report with the time of its end."""
        return self.model_copy(update={"finished": datetime.now(UTC)})


NamedRow = QualityRow | AnswerRow | SpeedRow | BuildRow

_SECTIONS: dict[type[Row], str] = {
    DataSet: "data_sets",
    QualityRow: "quality",
    AnswerRow: "answers",
    BuildRow: "builds",
    SpeedRow: "speed",
    TuneSection: "tune",
    Failure: "failures",
}


def write_report(report: Report, path: Path) -> None:
    """Write a report to this file; create its folder if it is missing."""
    write_whole(path, report.model_dump_json(indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; create its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def read_report(path: Path) -> Report:
    """Return the report in a file, or in a folder's `report.json`.

    Raises:
        InvalidRequest: The file cannot be read, is not a report, or has another schema version.
    """
    source = path / REPORT_NAME if path.is_dir() else path
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InvalidRequest(f"{source} is not JSON: {error}.") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise InvalidRequest(
            f"{source} has report schema version {version!r}, this Corral reads {SCHEMA_VERSION}.",
            hint="Use the Corral that wrote it, or run the benchmark again.",
        )
    try:
        return Report.model_validate_json(json.dumps(data))
    except ValidationError as error:
        where, words = first_finding(error)
        raise InvalidRequest(f"{source}: {where}: {words}.", field=where) from None


DISTRIBUTION = "corral-rag"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def begin_report(command: str, seed: int, packages: Iterable[str] = ()) -> Report:
    """Return an empty report with the environment of the run.

    Args:
        command: The command line that reproduces the run.
        seed: The random seed.
        packages: Further distributions to list with versions, such as a peer's.
    """
    return Report(
        command=command,
        seed=seed,
        started=datetime.now(UTC),
        corral_version=version_of(DISTRIBUTION),
        python=platform.python_version(),
        packages=package_versions(packages),
        hardware=hardware(),
    )


def package_versions(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Corral's installed dependencies and of `more`."""
    wanted = [*(metadata.requires(DISTRIBUTION) or ()), *more]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in wanted}
    ordered = sorted(names - {DISTRIBUTION}, key=str.casefold)
    return {name: version for name in ordered if (version := version_of(name))}


@cache  # reading some fifty files takes 25 ms per report
def version_of(distribution: str) -> str:
    """Return the version of a distribution, empty if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def hardware() -> Hardware:
    """Return a description of this machine."""
    return Hardware(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_mib=_memory() // 2**20,
        system=f"{platform.system()} {platform.release()}",
        threads={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    )


def _memory() -> int:
    """Return the machine's memory in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil  # noqa: PLC0415 - optional: comes with an extra, needed on Windows only

    return int(psutil.virtual_memory().total)


def _cpu() -> str:
    """Return the processor's name, from a file on Linux, else from Python."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = re.search(r"^model name\s*:\s*(.+)$", info.read_text("utf-8"), re.MULTILINE)
        if named:
            return named.group(1).strip()
    return platform.processor() or platform.machine()
