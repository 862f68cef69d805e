"""`corral conformance`: the conformance suite on a provider as its operator configured it.

The suite runs in a separate pytest process, without the user's pytest settings and plugins, and
only in scratch vector DBs (see `corral.api.testing.live`). A reader has a suite of its own, and
reads the files that the caller names.

`--json FILE` writes one object:

    provider_type, provider_id   strings
    corral_version               string
    conforms                     boolean: nothing failed, and everything that applies ran
    capabilities                 object, as in /v1/providers; they decide what applies (not for a
                                 reader)
    groups                       object by name (lifecycle, vector, ...; reader for a reader), each
                                 an object with
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
from corral.providers.base.config import (
    ProviderEntry,
    Providers,
    RunConfig,
    data_home,
    load_config,
)
from corral.providers.ingestion.read.external import chosen, named_type
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.registry import build_provider, find_spec, provider_specs
from corral.server import DISTRIBUTION
from corral.server.cli import display
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.progress import progress

if TYPE_CHECKING:
    from corral.api.testing.matrix import Group

TARGET_VARIABLE = "CORRAL_CONFORMANCE"
"""Environment variable that describes the tested provider to the suite's processes, as JSON."""

SUITES = {
    Api.VECTOR_IO: Path(__file__).with_name("conformance_suite.py"),
    Api.READER: Path(__file__).with_name("conformance_reader_suite.py"),
}
"""The suite by the kind of provider."""

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
        CommandError: The type has no suite, or several of it are configured.
    """
    kinds = [api for api, name in provider_specs() if name == provider_type]
    if kinds and not SUITES.keys() & kinds:
        raise CommandError(
            f"{provider_type} has no suite: it neither stores chunks nor reads files.",
            exit_code=BAD_INPUT,
        )
    api = Api.READER if Api.READER in kinds else Api.VECTOR_IO
    spec = find_spec(api, provider_type)
    entries = load_config(config, home).providers.of(api)
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


def subject_of(target: JSON) -> Subject:
    """Return the provider that the command passes to the suite's processes."""
    config = None if target["config"] is None else Path(target["config"])
    return choose(config, Path(target["home"]), target["provider_type"], target["provider_id"])


def conformance(
    config: Path | None,
    home: Path | None,
    provider_type: str,
    provider_id: str | None,
    json_file: Path | None,
    samples: Sequence[tuple[Path, str]] = (),
) -> bool:
    """Run the suite and show the matrix; return True if the provider conforms.

    Args:
        config, home, provider_type, provider_id: As for `choose`.
        json_file: Gets the matrix, too.
        samples: Files for a reader, each with its words; a slash divides two pages.

    Raises:
        MissingDependency: pytest, or a package of the provider, is not installed.
        UnknownProvider, ConfigError: As `choose`.
        CommandError: As `choose`; or the files are not the reader's, or the suite could not run.
        Unavailable: The provider does not answer.
    """
    folder = home or data_home()
    if importlib.util.find_spec("pytest") is None:
        raise MissingDependency("corral conformance", "pytest", "pip install 'corral-rag[testing]'")
    subject = choose(config, folder, provider_type, provider_id)
    files = checked_samples(subject, samples, folder)
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
            "samples": files,
        }
        lines = _run_suite(Path(work), SUITES[subject.spec.api], target)
    groups = _matrix(subject, lines)
    if json_file is not None:
        report = json.dumps(as_json(subject, groups), ensure_ascii=False, indent=2)
        json_file.write_text(f"{report}\n", encoding="utf-8")
    _show(subject, groups)
    return conforms(groups)


def checked_samples(
    subject: Subject, samples: Sequence[tuple[Path, str]], home: Path
) -> list[JSON]:
    """Return the files for a reader as JSON values, with the types by which it gets them.

    Raises:
        ConfigError: The reader's settings are wrong.
        CommandError: A reader has no file, or one without words or of another reader's type; or
            another provider has some.
    """
    kind = subject.spec.provider_type
    if subject.spec.api is not Api.READER:
        if samples:
            raise CommandError(f"{kind} reads no files: leave out --sample.", exit_code=BAD_INPUT)
        return []
    if not samples:
        raise CommandError(
            f"{kind} is tested on files of its types.",
            hint="Name at least one with words of its text: --sample plan.doc 'barn fence'",
            exit_code=BAD_INPUT,
        )
    config = RunConfig(providers=Providers(reader=[subject.entry]))
    readers = ConfiguredProviders(config, home).readers()
    made = []
    for path, words in samples:
        data = path.read_bytes()
        file = chosen(readers, data, named_type(path.name))
        if file is None or not words.strip(" /"):
            lacks = "is of a type that mime_types does not list" if file is None else "has no words"
            raise CommandError(f"--sample: {path.name} {lacks}.", exit_code=BAD_INPUT)
        made.append({"path": str(path.absolute()), "mime_type": file.mime_type, "words": words})
    return made


def conforms(groups: Sequence[Group]) -> bool:
    """Return True if nothing failed and everything that applies ran."""
    return all(group.outcome in {"passed", "not applicable"} for group in groups)


def as_json(subject: Subject, groups: Sequence[Group]) -> JSON:
    """Return a run as JSON values; see the module."""
    has_capabilities = subject.spec.api is Api.VECTOR_IO
    return {
        "provider_type": subject.spec.provider_type,
        "provider_id": subject.entry.provider_id,
        "corral_version": metadata.version(DISTRIBUTION),
        "conforms": conforms(groups),
        **({"capabilities": subject.spec.capabilities.as_dict()} if has_capabilities else {}),
        "groups": {group.name: group.as_dict() for group in groups},
    }


async def _check_health(subject: Subject, place: Path) -> None:
    """Refuse a provider that does not respond, before any test does."""
    provider = build_provider(subject.spec.api, subject.entry, place)
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


def _run_suite(work: Path, suite: Path, target: JSON) -> list[str]:
    """Run pytest to its end, showing its progress, and return the lines of its report."""
    report, log, settings = work / "report.jsonl", work / "log.txt", work / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")
    report.touch()
    command = [
        sys.executable, "-m", "pytest", str(suite), "-c", str(settings), f"--rootdir={work}",
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
    from corral.api.testing.matrix import matrix, reader_matrix
    from corral.api.testing.report import read_outcomes

    if subject.spec.api is Api.READER:
        return reader_matrix(read_outcomes(lines))
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
