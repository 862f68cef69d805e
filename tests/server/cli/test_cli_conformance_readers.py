"""`corral conformance` on a reader: its suite, on files that the caller names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from corral.api.testing import ReaderConformance
from corral.server.cli import conformance

from ...providers.json_service import Reply
from ...providers.reader import services
from ...providers.reader.services import Request, running, sample

Corral = Callable[..., Result]

TESTS = [name for name in vars(ReaderConformance) if name.startswith("test_")]


def backwards(request: Request) -> Reply:
    """Answer as Tika does, with the pages in reverse."""
    head, mark, text = request.data.partition(b"Animals\n")
    pages = text.removesuffix(b"\n%END").split(b"\f")
    data = head + mark + b"\f".join(reversed(pages)) + b"\n%END" if mark else request.data
    return services.tika(replace(request, data=data))


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """A file of two pages that the service reads."""
    path = tmp_path / "animals.txt"
    path.write_bytes(sample("Animals", "lion zebra", "okapi").data)
    return path


@pytest.fixture
def configure(home: Path) -> Callable[[str], None]:
    """Return a function that makes a service the reader of plain texts in run.yaml."""

    def write(url: str) -> None:
        settings = {"base_url": url, "mime_types": ["text/plain"]}
        reader = {"provider_id": "mine", "provider_type": "remote::tika", "config": settings}
        (home / "run.yaml").write_text(yaml.safe_dump({"providers": {"reader": [reader]}}))

    return write


@pytest.fixture
def url(configure: Callable[[str], None]) -> Iterator[str]:
    """The address of a service that the configuration names."""
    with running(services.tika) as service:
        configure(service.url)
        yield service.url


@pytest.mark.usefixtures("url")
def test_a_reader_conforms(corral: Corral, animals: Path, tmp_path: Path) -> None:
    """Exit code 0, every test of its suite, the same as JSON."""
    file = tmp_path / "matrix.json"
    done = corral(
        "conformance", "remote::tika", "--sample", animals, "lion zebra / okapi", "--json", file
    )
    assert done.exit_code == 0, done.output
    assert f"remote::tika (mine) conforms: all {len(TESTS)} standard tests" in done.stdout
    report = json.loads(file.read_text("utf-8"))
    assert report["conforms"] is True
    assert "capabilities" not in report
    assert report["groups"]["reader"]["passed"] == len(TESTS)


def test_a_defect_of_a_reader_is_named_with_its_rule(
    corral: Corral, animals: Path, configure: Callable[[str], None]
) -> None:
    """A service that returns the pages in reverse: exit code 1, test, rule and finding."""
    with running(backwards) as service:
        configure(service.url)
        done = corral("conformance", "remote::tika", "--sample", animals, "lion zebra / okapi")
    assert done.exit_code == 1
    assert "reader: test_the_words_of_a_file_come_in_order" in done.stdout
    assert "rule: The text has every word of the file" in done.stdout
    assert "remote::tika (mine) does not conform: " in done.stdout


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("provider_type", "name", "words", "message"),
    [
        ("remote::tika", "", "", "remote::tika is tested on files of its types."),
        ("remote::tika", "animals.txt", " / ", "--sample: animals.txt has no words."),
        ("remote::tika", "page.html", "lion", "page.html is of a type that mime_types does not"),
        ("inline::memory", "animals.txt", "lion", "inline::memory reads no files"),
    ],
)
def test_files_are_checked_before_any_test(
    provider_type: str, name: str, words: str, message: str,
    corral: Corral, animals: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A missing file, one without words, one of another type, one for an engine: exit code 2."""
    monkeypatch.setattr(conformance, "_run_suite", lambda *_: pytest.fail("the suite was started"))
    (animals.parent / "page.html").write_text("<!DOCTYPE html><html><body>lion</body></html>")
    samples = ["--sample", animals.parent / name, words] if name else []
    done = corral("conformance", provider_type, *samples)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_reader_that_is_not_configured_lacks_its_settings(corral: Corral, animals: Path) -> None:
    """A service has no default address: exit code 2, and the setting that is missing."""
    done = corral("conformance", "remote::tika", "--sample", animals, "lion")
    assert done.exit_code == 2
    assert "tika.config.base_url: missing" in done.stderr
