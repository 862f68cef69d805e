"""The folders at the top level are the packages corral.api, corral.providers and so on."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOMS = ("api", "bench", "providers", "server")
README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
# The files that a relative link points to are in the repository, not beside the package's page.
DESCRIPTION = re.sub(r"\[([^\]\n]+)\]\((?!https?:|#)[^)]+\)", r"\1", README)

setup(
    long_description=DESCRIPTION,
    long_description_content_type="text/markdown",
    packages=[
        *(
            f"corral.{package}"
            for package in find_packages(include=[p for room in ROOMS for p in (room, f"{room}.*")])
        ),
        "corral.rfcs",  # no code: what `corral demo` reads
    ],
    package_dir={f"corral.{room}": room for room in (*ROOMS, "rfcs")},
    package_data={
        "": ["py.typed", "*.md", "*.css", "*.js", "*.jinja", "*.npy", "static/*", "static/*/*"]
    },
)
