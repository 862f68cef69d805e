"""The files of the console: the libraries as they came, and modules of a readable size."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from ..bench.report.headless import INSTALLED

STATIC = Path(str(resources.files("corral.server.page") / "static"))
VENDOR = STATIC / "vendor"
ROW = re.compile(r"^\| `([\w.-]+)` \|.*\| `([0-9a-f]{64})` \|$", re.MULTILINE)
MOST_LINES = 200
MOST_CHARACTERS = 14_000


def own_modules() -> list[Path]:
    """Return the console's own modules."""
    return [path for path in sorted(STATIC.rglob("*.js")) if VENDOR not in path.parents]


def test_the_libraries_are_those_of_the_table() -> None:
    """Each file has its row with its hash, and its license is beside it.

    If this fails: a library was changed by hand, or updated without its row.
    """
    rows = dict(ROW.findall((VENDOR / "README.md").read_text("utf-8")))
    files = {path.name: path.read_bytes() for path in VENDOR.glob("*.js")}
    assert rows == {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}
    licenses = (VENDOR / "LICENSES.txt").read_text("utf-8")
    for name in files:
        assert name in licenses


def test_the_modules_are_small_and_make_no_markup_of_texts() -> None:
    """No module is long, none sets HTML from a text, and none asks another host.

    If this fails: split the module by view, or make elements with `html`.
    """
    for path in own_modules():
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= MOST_LINES, path.name
        assert len(text) <= MOST_CHARACTERS, path.name
        found = re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert not found, path.name
        assert not re.findall(r"""["'`]https?://[\w.]""", text), path.name


def node() -> str | None:
    """Return node: the machine's, or a wheel's; None without one."""
    wheel = Path(sys.executable).with_name("node")
    return shutil.which("node") or (str(wheel) if wheel.exists() else None)


def test_the_types_of_the_modules_hold(tmp_path: Path) -> None:
    """TypeScript's compiler reads the JSDoc comments and finds no error in the own modules.

    If this fails: the message has the file, the line and what the compiler expects.
    """
    compiler, program = INSTALLED / "typescript" / "tsc.js", node()
    if program is None or not compiler.exists():
        pytest.skip("no TypeScript: run `make test`, which installs it with npm")
    options = {
        "allowJs": True,
        "checkJs": True,
        "noEmit": True,
        "strict": True,
        "noImplicitAny": False,  # what the API answers has no types
        "target": "es2022",
        "module": "es2022",
        "moduleResolution": "bundler",
        "lib": ["es2023", "dom", "dom.iterable"],
        "types": [],
    }
    settings = {"compilerOptions": options, "files": [str(path) for path in own_modules()]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings), "utf-8")
    words = [program, str(compiler), "-p", str(tmp_path), "--pretty", "false"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in ran.stdout.splitlines() if "error TS" in line]
    assert [line for line in errors if "/vendor/" not in line] == []
    assert ran.returncode == 0 or errors, ran.stdout + ran.stderr
