"""What a run ran on: hardware, versions, and the report that begins with them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import psutil

from corral.bench.report.report import Report
from corral.bench.report.rows import Hardware

DISTRIBUTION = "corral-rag"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def begin_report(command: str, seed: int, packages: Iterable[str] = ()) -> Report:
    """Return an empty report that says on what the run runs.

    Args:
        command: The command line that reproduces the run.
        seed: What everything random in it was drawn from.
        packages: Distributions beside Corral's own whose versions count, such as a peer's.
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
    """Return the versions of what Corral can use, and of `more`, where it is installed."""
    wanted = [*(metadata.requires(DISTRIBUTION) or ()), *more]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in wanted}
    ordered = sorted(names - {DISTRIBUTION}, key=str.casefold)
    return {name: version for name in ordered if (version := version_of(name))}


@cache  # reading some fifty files takes 25 ms, for each report
def version_of(distribution: str) -> str:
    """Return the version of a distribution, empty if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def hardware() -> Hardware:
    """Return what this machine is."""
    return Hardware(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_mib=psutil.virtual_memory().total // 2**20,
        system=f"{platform.system()} {platform.release()}",
        threads={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    )


def _cpu() -> str:
    """Return the processor's name; Linux says it in a file, others to Python."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = re.search(r"^model name\s*:\s*(.+)$", info.read_text("utf-8"), re.MULTILINE)
        if named:
            return named.group(1).strip()
    return platform.processor() or platform.machine()
