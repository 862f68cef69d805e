"""What `py.typed` promises: mypy without pydantic's plugin accepts the code of our pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "docs" / "writing-a-provider.md"]
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
WHOLE = [block for block in BLOCKS if block.startswith(("import ", "from "))]
"""The blocks that are programs; the others are parts of the example provider, which is checked."""


@pytest.mark.timeout(600)
def test_a_users_mypy_accepts_the_readme(pytestconfig: pytest.Config) -> None:
    """mypy --strict, with no configuration and so no plugin, finds nothing to say.

    If this fails with "Missing named argument": write `Field(default=...)`, by name, since only
    the plugin knows that the first argument is the default.
    """
    assert len(WHOLE) == 4
    # In one place for all runs: mypy reads again what changed since the last one, and no more.
    folder = pytestconfig.cache.mkdir("types_of_users")
    for number, block in enumerate(WHOLE):
        (folder / f"readme_{number}.py").write_text(block, encoding="utf-8")
    links = folder / "path" / "corral"  # as `make check` has them: mypy knows no package-dir
    links.mkdir(parents=True, exist_ok=True)
    for room in ("api", "bench", "providers", "server"):
        (links / room).unlink(missing_ok=True)
        (links / room).symlink_to(PROJECT / room)
    example = PROJECT / "examples" / "corral-provider-dict"
    (folder / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\nmypy_path = {links.parent}:{example}\nfollow_imports = silent\n"
        # The other project's client has types of its own, which are not Corral's to promise.
        "[mypy-llama_stack_client.*]\nignore_missing_imports = True\nfollow_imports = skip\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *(f"readme_{n}.py" for n in range(len(WHOLE)))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
