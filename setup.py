"""The folders at the top level are the packages corral.api, corral.providers and so on."""

from setuptools import find_packages, setup

ROOMS = ("api", "bench", "providers", "server")

setup(
    packages=[
        *(
            f"corral.{package}"
            for package in find_packages(include=[p for room in ROOMS for p in (room, f"{room}.*")])
        ),
        "corral.rfcs",  # no code: what `corral demo` reads
    ],
    package_dir={f"corral.{room}": room for room in (*ROOMS, "rfcs")},
    package_data={"": ["py.typed", "*.md", "*.css", "*.js"]},
)
