"""The files of the console: the libraries as they came, and modules of a readable size."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

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
