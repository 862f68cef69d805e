"""Has Python processes that tests start open their states as `state_database.py` says.

Python imports this module at its start if the folder is on `PYTHONPATH`. It changes the one module
of Corral when something imports it, so that processes without a state start as they do elsewhere.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

OPENING = "corral.providers.state.opening"


class _Redirecting(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        runpy.run_path(str(Path(__file__).parents[1] / "state_database.py"))["use"]()


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != OPENING:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec
        assert spec.loader
        spec.loader = _Redirecting(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
