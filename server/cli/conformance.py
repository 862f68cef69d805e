"""`corral conformance`: the conformance suite on a provider as its operator configured it.

The suite runs in a separate pytest process, without the user's pytest settings and plugins, and
only in scratch vector DBs (see `corral.api.testing.live`).

`--json FILE` writes one object:

    provider_type, provider_id   strings
    corral_version               string
    conforms                     boolean: nothing failed, and everything that applies ran
    capabilities                 object, as in /v1/providers; they decide what applies
    groups                       object by name (lifecycle, vector, ...), each an object with
        outcome                  "passed", "failed", "not run" or "not applicable"
        passed, failed, not_run, not_applicable
                                 integers: standard tests
        failures                 array of objects with test, rule and message, strings: each case
                                 that failed, what it demands, and what was found
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType

from corral.api.errors import MissingDependency, Unavailable, UnknownProvider
from corral.api.provider import Api, Health, ProviderSpec
from corral.providers.base.config import ProviderEntry, data_home, load_config
from corral.providers.stack.registry import build_provider, find_spec, provider_specs
from corral.server import DISTRIBUTION
from corral.server.cli import display
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.progress import progress

if TYPE_CHECKING:
    from corral.api.testing.matrix import Group

TARGET_VARIABLE = "CORRAL_CONFORMANCE"
"""Environment variable that describes the tested provider to the suite's processes, as JSON."""

SUITE = Path(__file__).with_name("conformance_suite.py")
HEALTH_TIMEOUT_SECONDS = 30
CLEANING_SECONDS = 120
"""Seconds for the running test to end when the suite is interrupted."""

_SECONDS_BETWEEN_LOOKS = 0.2
_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """The provider that the suite is run on.

    Attributes:
        spec: The spec of the provider's type.
        entry: The provider's configuration, or the type's defaults.
        configured: True if the configuration names it.
    """

    spec: ProviderSpec
    entry: ProviderEntry
    configured: bool


def choose(config: Path | None, home: Path, provider_type: str, provider_id: str | None) -> Subject:
    """Return the configured provider of a type.

    Args:
        config: The run.yaml, None for the one in `home`.
        home: The data folder.
        provider_type: Such as `inline::sqlite`.
        provider_id: Needed if several providers of the type are configured; if none is, the type's
            defaults apply.

    Raises:
        UnknownProvider: The type is not installed, or the id is not configured for this type.
        CommandError: The type is not a vector_io provider, or several are configured.
    """
    if any(name == provider_type and api is not Api.VECTOR_IO for api, name in provider_specs()):
        raise CommandError(
            f"{provider_type} stores no chunks; the suite is for vector_io providers.",
            exit_code=BAD_INPUT,
        )
    spec = find_spec(Api.VECTOR_IO, provider_type)
    entries = load_config(config, home).providers.of(Api.VECTOR_IO)
    named = {e.provider_id: e for e in entries if e.provider_type == provider_type}
    if provider_id is not None and provider_id not in named:
        raise UnknownProvider(provider_id, named)
    if provider_id is None and len(named) > 1:
        raise CommandError(
            f"Several providers of type {provider_type} are configured: {', '.join(named)}.",
            hint="Name one with --provider-id.",
            exit_code=BAD_INPUT,
        )
    if not named:
        entry = ProviderEntry(provider_id=spec.name, provider_type=provider_type)
        return Subject(spec, entry, configured=False)
    return Subject(spec, named[provider_id or next(iter(named))], configured=True)


def conformance(
    config: Path | None,
    home: Path | None,
    provider_type: str,
    provider_id: str | None,
    json_file: Path | None,
) -> bool:
    """Run the suite and show the matrix; return True if the provider conforms.

    Raises:
        MissingDependency: pytest, or a package of the provider, is not installed.
        UnknownProvider, ConfigError, CommandError: See `choose`; or the suite could not run.
        Unavailable: The provider does not answer.
    """
    folder = home or data_home()
    if importlib.util.find_spec("pytest") is None:
        raise MissingDependency("corral conformance", "pytest", "pip install 'corral-rag[testing]'")
    subject = choose(config, folder, provider_type, provider_id)
    with tempfile.TemporaryDirectory(prefix="corral-conformance-") as work:
        # A provider that is not configured leaves nothing in the data folder.
        place = folder if subject.configured else Path(work, "home")
        asyncio.run(_check_health(subject, place))
        target = {
            "config": None if config is None else str(config.absolute()),
            "home": str(folder),
            "place": str(place),
            "provider_type": provider_type,
            "provider_id": provider_id,
        }
        lines = _run_suite(Path(work), target)
    groups = _matrix(subject, lines)
    if json_file is not None:
        report = json.dumps(as_json(subject, groups), ensure_ascii=False, indent=2)
        json_file.write_text(f"{report}\n", encoding="utf-8")
    _show(subject, groups)
    return conforms(groups)


def conforms(groups: Sequence[Group]) -> bool:
    """Return True if nothing failed and everything that applies ran."""
    return all(group.outcome in {"passed", "not applicable"} for group in groups)


def as_json(subject: Subject, groups: Sequence[Group]) -> JSON:
    """Return a run as JSON values; see the module."""
    return {
        "provider_type": subject.spec.provider_type,
        "provider_id": subject.entry.provider_id,
        "corral_version": metadata.version(DISTRIBUTION),
        "conforms": conforms(groups),
        "capabilities": subject.spec.capabilities.as_dict(),
        "groups": {group.name: group.as_dict() for group in groups},
    }


async def _check_health(subject: Subject, place: Path) -> None:
    """Refuse a provider that does not respond, before any test does."""
    provider = build_provider(Api.VECTOR_IO, subject.entry, place)
    try:
        health = await asyncio.wait_for(provider.health(), HEALTH_TIMEOUT_SECONDS)
    except TimeoutError:
        health = Health("Error", f"no answer in {HEALTH_TIMEOUT_SECONDS} s")
    finally:
        await provider.close()
    if health.status != "OK":
        raise Unavailable(
            f"503: provider {subject.entry.provider_id!r} ({subject.spec.provider_type}) "
            f"cannot serve: {health.message}",
            hint="No test ran. Show its settings with: corral config show",
        )


def _run_suite(work: Path, target: dict[str, str | None]) -> list[str]:
    """Run pytest to its end, showing its progress, and return the lines of its report."""
    report, log, settings = work / "report.jsonl", work / "log.txt", work / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")
    report.touch()
    command = [
        sys.executable, "-m", "pytest", str(SUITE), "-c", str(settings), f"--rootdir={work}",
        f"--basetemp={work / 'tests'}", "--noconftest", "--import-mode=importlib", "-q",
        "-p", "no:cacheprovider", "-p", "corral.api.testing.live",
        "-p", "corral.api.testing.report",
        f"--conformance-report={report}",
    ]  # fmt: skip
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ours |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", TARGET_VARIABLE: json.dumps(target)}
    with log.open("w", encoding="utf-8") as output:
        # A separate session: Ctrl-C then reaches pytest once, through this process, so it can clean
        # up.
        process = subprocess.Popen(  # noqa: S603 - no shell, and no text from users
            command, stdout=output, stderr=output, env=ours, start_new_session=True
        )
        with ExitStack() as interrupted:
            interrupted.callback(_stop, process)
            lines = _follow(report, process)
            interrupted.pop_all()
    if process.returncode not in {0, 1}:
        last_lines = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:])
        raise CommandError(
            f"The suite ended with {process.returncode}:\n{display.clean(last_lines)}"
        )
    return lines


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the suite after the running test; kill it if it does not stop."""
    click.echo("Waiting for the running test to delete its vector DBs.", err=True)
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(CLEANING_SECONDS)
    process.kill()


def _follow(report: Path, process: subprocess.Popen[bytes]) -> list[str]:
    """Show the suite's progress until it ends, and return the lines of its report."""

    def written() -> int:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        return report.read_bytes().count(b"\n")

    while not (seen := written()) and process.poll() is None:
        pass
    if seen:
        with report.open(encoding="utf-8") as file:
            cases = json.loads(file.readline())["cases"]
        with progress(cases, cases, work="Testing", things="tests") as advance:
            while process.poll() is None:
                before, seen = seen, written()
                advance(seen - before, seen - before)
    return report.read_text(encoding="utf-8").splitlines()


def _matrix(subject: Subject, lines: Sequence[str]) -> list[Group]:
    from corral.api.testing.matrix import matrix
    from corral.api.testing.report import read_outcomes

    return matrix(subject.spec.capabilities, read_outcomes(lines))


def _show(subject: Subject, groups: Sequence[Group]) -> None:
    failures = [
        f"{group.name}: {failure.test}\n  rule: {failure.rule}\n  found: {failure.message}"
        for group in groups
        for failure in group.failures
    ]
    display.show(_table(groups), *map(display.clean, [*failures, _verdict(subject, groups)]))


def _table(groups: Sequence[Group]) -> RenderableType:
    numbers = ("passed", "failed", "not run", "not applicable")
    table = display.new_table("group", *(f"{name}>" for name in numbers), "outcome")
    for group in groups:
        counts = (group.passed, group.failed, group.not_run, group.not_applicable)
        display.add_row(table, group.name, *(n or "-" for n in counts), group.outcome)
    return table


def _verdict(subject: Subject, groups: Sequence[Group]) -> str:
    who = f"{subject.spec.provider_type} ({subject.entry.provider_id})"
    count: dict[str, Any] = {
        name: sum(getattr(group, name) for group in groups)
        for name in ("passed", "failed", "not_run", "not_applicable")
    }
    applying = count["passed"] + count["failed"] + count["not_run"]
    if conforms(groups):
        rest = f"{count['not_applicable']} do not apply"
        return f"{who} conforms: all {applying} standard tests that apply passed, {rest}."
    not_run = f", {count['not_run']} did not run" if count["not_run"] else ""
    failed = f"{count['failed']} of {applying} standard tests failed{not_run}"
    return f"{who} does not conform: {failed}."
