"""How code and tests are written: short modules, pinned versions, no constant patched."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("api", "providers", "server", "bench")


def test_every_module_is_shorter_than_500_lines() -> None:
    """A longer one is about more than one thing; split it where it changes the subject."""
    rooms = (*PRODUCT, "lab", "tests", "integrations", "examples")
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
    }
    assert {path: count for path, count in lines.items() if count >= 500} == {}


def test_no_test_asserts_a_time_of_less_than_five_seconds() -> None:
    """A busy machine makes such a test fail; `make bounds` is where speed is held.

    A rule about growth compares two inputs (tests/growth.py).
    """
    short = re.compile(r"(?:_time|perf_counter|monotonic|time|seconds)\([^<\n]*<=? *([\d.]+)")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for room in ("tests", "integrations", "examples")
        for path in sorted((ROOT / room).rglob("*.py"))
        for match in short.finditer(path.read_text("utf-8"))
        if float(match[1]) < 5
    ]
    assert found == []


def patched_names(call: ast.Call) -> Iterator[str]:
    """Yield the names of the attributes that a call of `setattr` or `patch` sets."""
    function = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if function in {"setattr", "object", "patch", "multiple"}:
        texts = [getattr(argument, "value", None) for argument in call.args[:2]]
        yield from [text.rpartition(".")[2] for text in texts if isinstance(text, str)][:1]
        yield from (keyword.arg or "" for keyword in call.keywords)


def test_tests_patch_no_constant() -> None:
    """A test gives a tunable as an argument or a setting, or uses as much data as the real one
    needs.

    If this fails: renaming a constant breaks tests of something else, and a bound is never tried.
    """
    patched = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for room in ("tests", "integrations")
        for path in sorted((ROOT / room).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and any(name.strip("_").isupper() for name in patched_names(call))
    ]
    assert patched == []


MAX_PRIVATE_READS = 86
"""Private attributes of other objects that tests read. It may only fall."""


def private_reads(source: str) -> Iterator[ast.Attribute]:
    """Yield each private attribute of an object that is not the code's own.

    Names such as `_repr_html_`, which a protocol gives, are public.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_(?!_)\w*(?<!_)", node.attr):
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in {"self", "cls"}
            if not own and ast.unparse(owner) != "super()":
                yield node


def test_tests_read_few_private_attributes() -> None:
    """A test asks what an object promises, or injects faults at a driver that is public.

    If this fails: take the fact from a public method, then write the smaller number above.
    """
    reads = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}"
        for room in ("tests", "integrations")
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in private_reads(path.read_text("utf-8"))
    ]
    assert len(reads) <= MAX_PRIVATE_READS, "\n".join(reads)
    assert len(list(private_reads("self._a, b._c, d._repr_html_, e.__f__, super()._g"))) == 1


MAX_SQLITE_STATE_MARKS = 12
"""Tests that are about SQLite, so that they do not run with the states in PostgreSQL."""


def test_few_tests_are_about_sqlite_only() -> None:
    """A test runs with both states unless SQLite's file is its subject, and says why.

    If this fails: read the state with `rows_of` and copy data folders with `copy_home`, both of
    `tests/state_database.py`.
    """
    marks = [
        f"{path.relative_to(ROOT)}: {match[1]}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for match in re.finditer(r"mark\.sqlite_state(.*)", path.read_text("utf-8"))
    ]
    assert len(marks) <= MAX_SQLITE_STATE_MARKS, "\n".join(marks)
    assert all(re.search(r': \(".{9,}"\)$', mark) for mark in marks), "\n".join(marks)


def test_versions_are_pinned_and_no_index_is_named() -> None:
    """constraints.txt pins exact versions by name and holds no address."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+]+", line) for line in pins)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    for requirement in wanted:
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=! ;]", requirement)[0]).lower()
        assert name == "corral-rag" or name in pinned, f"{requirement} is not pinned"
