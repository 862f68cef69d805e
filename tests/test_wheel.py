"""The wheel holds what its commands read, and nothing that is not the package's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PARTS = (
    "api", "bench", "lab", "providers", "rfcs", "server",
    "README.md", "LICENSE", "pyproject.toml", "setup.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        if (PROJECT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / name, folder / "src" / name, ignore=ignored)
        else:
            shutil.copy(PROJECT / name, folder / "src" / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--no-index", "--wheel-dir", str(folder), "./src"]
    subprocess.run([*command, *options], cwd=folder, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.timeout(300)
def test_the_wheel_holds_what_its_commands_read(wheel: Path) -> None:
    """The rfcs for `corral demo`, the report's files, py.typed; the README, less relative links.

    If this fails: `pip install` of the wheel gives commands that miss their files.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [about] = [name for name in names if name.endswith(".dist-info/METADATA")]
        described = archive.read(about).decode()
    rfcs = {f"corral/rfcs/{path.name}" for path in (PROJECT / "rfcs").glob("*.md")}
    assert rfcs <= names
    for room in ("api", "bench", "providers", "server"):
        assert f"corral/{room}/py.typed" in names
        of_room = [
            path for end in ("py", "css", "npy") for path in (PROJECT / room).rglob(f"*.{end}")
        ]
        assert {f"corral/{path.relative_to(PROJECT)}" for path in of_room} <= names
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    for block in readme.split("```")[1::2]:
        assert block in described
    assert not re.search(r"\]\((?!https?:|#)", described), "a relative link leads nowhere there"
    beside = ("tests", "corral/tests", "lab", "corral/lab")
    assert not any(name.startswith(beside) for name in names)
