"""The page of the Python reference, which mkdocstrings fills."""

from __future__ import annotations

from corral.api import HOMES

LIBRARY = "corral.providers.library"
KIT = (
    "corral.api.testing",
    *(f"corral.providers.text.{name}" for name in ("analyzer", "fields", "bm25")),
    *(
        f"corral.providers.vector_io.kit.{name}"
        for name in ("exact", "candidates", "sparse", "write_ahead")
    ),
)
MODULES = [LIBRARY, *(f"corral.api.{name}" for name in HOMES), *KIT]


def python_reference() -> str:
    """Return the library, the contract and what authors of providers import, module by module."""
    modules = "\n\n".join(f"::: {name}" for name in MODULES)
    return (
        "# Python reference\n\n"
        f"[`{LIBRARY}`](#{LIBRARY}) is Corral in ten lines: `open` a folder, then `register`, "
        "`insert`, `query` and `ask`. The other modules are the contract, whose names you also "
        "import from `corral.api`, and what authors of providers use beside it: the conformance "
        "suite, `corral.providers.text` and `corral.providers.vector_io.kit`.\n\n"
        f"{modules}\n"
    )
