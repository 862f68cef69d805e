"""The common part of all runs: the plan and its checks, the clock, progress, failures.

A run measures backends on data in steps. An exception of a backend becomes a row of the report, and
the others continue; the report is written after every step, so that a killed run can be resumed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import Conflict, CorralError, InvalidRequest
from corral.api.provider import Api
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend, find_backends, prepared
from corral.bench.report.report import (
    DISTRIBUTION,
    REPORT_NAME,
    Report,
    begin_report,
    version_of,
    write_report,
    write_whole,
)
from corral.bench.report.rows import Failure, Row
from corral.bench.scratch import batches
from corral.bench.system import Collection, System
from corral.providers.base.config import RunConfig
from corral.providers.stack.registry import check_config

Advance = Callable[[int, int], None]
"""Called with the number of finished things and their amount of work."""
Step = Callable[[str, int], None]
"""Called before each step with its stage and its work; raises `OutOfTime` when time is up."""

NO_TIME = "No time was left for all of it."
_FOLDER = "cells"
_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")
_P = TypeVar("_P", bound="Plan")


class OutOfTime(Exception):
    """The time of the run is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arguments of every run.

    Attributes:
        config: The configuration of the providers.
        out: Folder of the report, the run files and the finished parts.
        home: Data folder, which keeps embeddings between runs.
        model: Embedding model for judged sets; None for the configuration's default.
        max_seconds: Time limit after which no step starts.
        resume: True to reuse finished parts in `out`.
        command: The command line, for the report.
    """

    backends: tuple[Backend, ...]
    modes: tuple[SearchMode, ...]
    config: RunConfig
    out: Path
    home: Path
    seed: int = 0
    model: str | None = None
    max_seconds: float | None = None
    resume: bool = False
    command: str = ""

    def requires(self) -> list[str]:
        """Return the distributions of the foreign systems, for the report's list of versions."""
        return [n for backend in self.backends if backend.entry is None for n in backend.requires]

    def check(self) -> None:
        """Refuse a plan that cannot work.

        Raises:
            InvalidRequest, ConfigError: No backend has any of the modes, or its settings are wrong.
            Conflict: `out` holds another run's report, and `resume` is not set.
        """
        for backend in self.backends:
            if backend.entry is not None:
                check_config(Api.VECTOR_IO, backend.entry)
        if not any(mode in backend.modes for backend in self.backends for mode in self.modes):
            raise InvalidRequest(
                f"None of these backends has the mode {', '.join(self.modes)}.", field="modes"
            )
        if not self.resume:
            refuse_existing(self.out)


def planned(
    kind: type[_P],
    *,
    backends: Sequence[str],
    modes: Sequence[str] = tuple(SearchMode),
    config: RunConfig | None = None,
    **options: Any,
) -> _P:
    """Return a checked plan without starting, embedding or writing anything.

    Args:
        kind: Class of the plan.
        backends: As for `find_backends`.
        modes: Names of search modes.
        config: The configuration of the providers; None for the defaults.
        options: Further fields of the plan.

    Raises:
        InvalidRequest, ConfigError: The plan is invalid; the message says where.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    settings, valid = config or RunConfig(), [mode.value for mode in SearchMode]
    for name in modes:
        refuse_unknown(name, valid, "search mode", "modes")
    plan = kind(
        backends=tuple(find_backends(backends, settings)),
        modes=tuple(dict.fromkeys(map(SearchMode, modes))),
        config=settings,
        **options,
    )
    plan.check()
    return plan


def refuse_unknown(
    name: str, valid: Sequence[str], what: str, field: str, listed: str = "Valid"
) -> None:
    """Refuse a name that is not valid, and suggest the nearest one.

    Raises:
        InvalidRequest: It is not valid.
    """
    if name in valid:
        return
    near = difflib.get_close_matches(name, valid, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    raise InvalidRequest(
        f"Unknown {what} {name!r}.", hint=f"{meant}{listed}: {', '.join(valid)}.", field=field
    )


def refuse_existing(out: Path) -> None:
    """Raise Conflict if a folder has a report."""
    if (out / REPORT_NAME).exists():
        raise Conflict(f"{out} holds a report already.", hint="Choose another --out.", field="out")


class Run:
    """A run in progress: its report so far, its clock, and the rows of failures.

    Args:
        plan: The plan of the run.
        advance: Called with finished work.
        about: Fields of the report.
    """

    def __init__(self, plan: Plan, advance: Advance, **about: Any) -> None:
        begun = begin_report(plan.command, plan.seed, plan.requires())
        self.report = begun.model_copy(update=about)
        self.advance = advance
        self.stage = "start"
        self.ends = time.monotonic() + (plan.max_seconds or float("inf"))
        self._plan = plan

    @property
    def out_of_time(self) -> bool:
        """Return True if the run has used up its time."""
        return time.monotonic() > self.ends

    def add(self, *rows: Row) -> None:
        """Add rows to the report."""
        self.report = self.report.with_rows(*rows)

    def save(self) -> None:
        """Write the report."""
        write_report(self.report, self._plan.out / REPORT_NAME)

    def step(self, stage: str, work: int = 0) -> None:
        """Begin a step.

        Raises:
            OutOfTime: The time of the run is up.
        """
        self.stage = stage
        if self.out_of_time:
            raise OutOfTime
        self.advance(0, work)

    def fail(
        self, backend: Backend, stage: str, message: str, data_set: str, mode: str | None = None
    ) -> None:
        """Add a row for a failed measurement."""
        row = Failure(
            backend=backend.name, stage=stage, message=message, data_set=data_set, mode=mode
        )
        self.add(row)

    async def on(
        self, backend: Backend, collection: Collection, work: Callable[[System], Awaitable[_T]]
    ) -> _T | None:
        """Return the result of work with a prepared backend; None, and a row, if it fails."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                self.step("start")
                async with prepared(backend, Path(folder), collection) as system:
                    return await work(system)
            except OutOfTime:
                self.fail(backend, "budget", NO_TIME, collection.name)
            except Exception as error:  # noqa: BLE001 - the report lists it
                self.fail(backend, self.stage, said(error), collection.name)
        return None

    def finish(self, measured: Sequence[Row], hint: str = "") -> Report:
        """Write the report with the time of its end, and return it.

        Raises:
            InvalidRequest: The time was up before anything was measured.
        """
        if self._plan.max_seconds is not None and self.out_of_time and not measured:
            raise InvalidRequest(
                f"--max-seconds {self._plan.max_seconds:g} was too small for one measurement.",
                hint=hint,
                field="max_seconds",
            )
        self.report = self.report.done()
        self.save()
        return self.report


class Finished(Generic[_M]):
    """Finished parts of a run, stored in its folder by a hash of their inputs.

    Args:
        plan: The plan of the run.
        kind: The name of a part, such as a backend.
    """

    def __init__(self, plan: Plan, kind: type[_M]) -> None:
        self._folder = plan.out / _FOLDER
        self._kind = kind
        self._resume = plan.resume

    def find(self, key: str) -> _M | None:
        """Return a finished part for resuming; None if there is none that this version can read."""
        if not self._resume:
            return None
        try:
            return self._kind.model_validate_json(self._path(key).read_text("utf-8"))
        except (FileNotFoundError, ValidationError):
            return None

    def keep(self, key: str, part: _M) -> None:
        """Write a finished part atomically."""
        write_whole(self._path(key), part.model_dump_json())

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


async def fill(
    system: System, chunks: Sequence[Chunk], embeddings: NDArray[np.float32], step: Step
) -> None:
    """Store chunks in batches and let the system build its indexes."""
    for part, rows in batches(chunks, embeddings):
        step("ingest", len(part))
        await system.add(part, rows)
    await system.build()


def key_of(*parts: object) -> str:
    """Return a hash of JSON values."""
    data = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(data.encode()).hexdigest()[:32]


def backend_key(backend: Backend) -> list[object]:
    """Return the values that determine a backend's answers: name, address, settings, versions."""
    entry = backend.entry and backend.entry.model_dump(mode="json")
    versions = {name: version_of(name) for name in (DISTRIBUTION, *backend.requires)}
    return [backend.name, backend.address, entry, versions]


def said(error: Exception) -> str:
    """Return an error's text for a reader of the report; for foreign errors, with the type."""
    return str(error) if isinstance(error, CorralError) else f"{type(error).__name__}: {error}"
