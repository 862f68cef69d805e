"""What the command line and the README print can be pasted into a shell as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import make_home

ROOT = Path(__file__).parents[3]
VENV = Path(sys.prefix)


def shell(command: str, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell whose PATH has no `corral`."""
    path = [each for each in os.environ["PATH"].split(os.pathsep) if Path(each) != VENV / "bin"]
    return subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join(path), "CORRAL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("beside", [True, False])
def test_a_hint_names_a_command_that_works_where_it_is_printed(
    tmp_path: Path, beside: bool
) -> None:
    """Without `corral` on PATH, a hint names its path: relative to the folder, if it is below.

    If this fails: look at `as_run` in `server/cli/display.py`. After `make serve`, what
    Corral says to run ends in "command not found".
    """
    folder, home = (VENV.parent if beside else tmp_path), make_home(tmp_path / "home")
    text = tmp_path / "fence.txt"
    text.write_text("A fence keeps the sheep in.", encoding="utf-8")
    refused = shell(f"'{VENV}/bin/corral' ingest farm '{text}'", folder, home)
    assert refused.returncode == 2, refused.stderr
    found = re.search(r"Create it: (\S+) dbs create farm", refused.stderr)
    assert found, refused.stderr
    assert found[1].startswith(f"{VENV.name}/" if beside else str(VENV))
    created = shell(found[0].removeprefix("Create it: "), folder, home)
    assert created.returncode == 0, created.stderr
    assert "farm: hybrid search on sqlite" in created.stdout


def test_the_commands_of_the_readme_work_in_a_checkout(tmp_path: Path) -> None:
    """What the README prints after `make serve` runs in a shell of the checkout.

    If this fails: the second command of a newcomer is "command not found".
    """
    if VENV != ROOT / ".venv":
        pytest.skip("not in the .venv of the checkout, which make builds")
    home = make_home(tmp_path / "home")
    section = (ROOT / "README.md").read_text("utf-8").partition("## Serve it")[2]
    serve, *commands = section.split("```")[1].strip().splitlines()
    assert serve.startswith("make serve")
    done = shell("\n".join(commands), ROOT, home)
    assert done.returncode == 0, done.stderr
    assert "notes: ingested" in done.stdout
    assert "Context:" in done.stdout


def test_the_first_commands_of_the_readme_print_its_answer(tmp_path: Path) -> None:
    """After the installation, the README's first block ends in the answer that its second shows.

    If this fails: a stranger's first minute looks different from the README.
    """
    first, answer = (ROOT / "README.md").read_text("utf-8").split("```\n")[1:5:2]
    install, *commands = first.splitlines()
    assert install.startswith("pip install 'corral-rag[")
    path = f"export PATH='{VENV / 'bin'}':$PATH"
    done = shell("\n".join([path, *commands]), tmp_path, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(answer.rstrip())
