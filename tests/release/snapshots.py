"""Snapshots of what Semantic Versioning covers; `make snapshots` records them beside this file.

* `python.txt`: names, signatures and fields of the modules of the Python reference.
* `http.txt`: routes, parameters, and fields of bodies and answers.
* `run-yaml.txt`: settings with types, ranges and defaults.

Each line is one promise. A line that is missing now was removed or changed; a new line is an
addition, and compatible unless it is a required field of a body.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corral.providers.base.config import RunConfig
from corral.server.app import create_app

HERE = Path(__file__).parent
SITE = HERE.parents[1] / "docs" / "site"
REQUIRED = " (required)"
_REF = "#/components/schemas/"


def of_python() -> Iterator[str]:
    """Yield the public names of each module, with their signatures and fields."""
    for name in site("python_reference").MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        yield from _members(name, ast.parse(Path(spec.origin).read_text("utf-8")).body)


def _members(place: str, body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") or node.name == "__init__":
                before = [f"@{ast.unparse(each)} " for each in node.decorator_list]
                kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                answer = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                signature = f"{kind} {node.name}({ast.unparse(node.args)}){answer}"
                yield f"{place}: {''.join(before)}{signature}"
        elif isinstance(node, ast.ClassDef):
            if not node.name.startswith("_"):
                yield f"{place}: class {node.name}({', '.join(map(ast.unparse, node.bases))})"
                yield from _members(f"{place}.{node.name}", node.body)
        elif isinstance(node, ast.AnnAssign):
            if not (name := ast.unparse(node.target)).startswith("_"):
                yield f"{place}: {name}: {ast.unparse(node.annotation)}{_default(node.value)}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not (name := ast.unparse(target)).startswith("_"):
                    yield f"{place}: {name}"


def _default(value: ast.expr | None) -> str:
    """Return a field's default, without the description that a `Field` gives."""
    if value is None:
        return ""
    if isinstance(value, ast.Call):
        shown = [each for each in value.keywords if each.arg != "description"]
        value = ast.Call(value.func, value.args, shown)
    return f" = {ast.unparse(value)}"


def of_http() -> Iterator[str]:
    """Yield the routes with their parameters, and the fields of the types that they use."""
    with tempfile.TemporaryDirectory() as home:
        schema = create_app(RunConfig(), Path(home)).openapi()
    types, bodies, answers = schema["components"]["schemas"], set[str](), set[str]()
    shown: Callable[[Any], str] = site("http_reference").as_type
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            name = f"{method.upper()} {path}"
            yield name
            for each in route.get("parameters", ()):
                if each["in"] != "path":
                    required = REQUIRED if each.get("required") else _given(each["schema"])
                    yield f"{name}?{each['name']}: {_plain(shown(each['schema']))}{required}"
            for kind, content in route.get("requestBody", {}).get("content", {}).items():
                yield f"{name} body {kind}: {_plain(shown(content.get('schema', {})))}"
                bodies |= _used(content, types)
            for kind, content in route["responses"].get("200", {}).get("content", {}).items():
                yield f"{name} answer {kind}: {_plain(shown(content.get('schema', {})))}"
                answers |= _used(content, types)
    for name in sorted(bodies | answers):
        needed = types[name].get("required", ()) if name in bodies else ()
        if "properties" not in types[name]:
            yield f"{name}: {_plain(shown(types[name]))}"
        for field, node in types[name].get("properties", {}).items():
            default = _given(node) if name in bodies else ""
            required = REQUIRED if field in needed else default
            yield f"{name}.{field}: {_plain(shown(node))}{required}"


def _given(node: dict[str, Any]) -> str:
    return f" = {json.dumps(node['default'])}" if "default" in node else ""


def _used(node: Any, types: dict[str, Any]) -> set[str]:
    """Return the types that a part of the OpenAPI document refers to, at any depth."""
    names: set[str] = set()
    waiting = [str(node)]
    while waiting:
        new = set(re.findall(rf"{_REF}([\w.-]+)", waiting.pop())) - names
        names |= new
        waiting += [str(types[name]) for name in new]
    return names


def of_run_yaml() -> Iterator[str]:
    """Yield the settings, as docs/configuration.md lists them, without their meaning."""
    section = ""
    for line in site("configuration").configuration_page().splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif row := re.match(r"\| `(.+?)` \| (.*?) \| (.*?) \| ", line):
            default = REQUIRED if row[3] == "required" else f" = {row[3]}"
            yield f"{section} {row[1]}: {row[2]}{default if row[3] else ''}"


def _plain(kind: str) -> str:
    """Return a type without the links of the reference."""
    return re.sub(r"\[([^\]]*)\]\(#[^)]*\)", r"\1", kind)


def site(name: str) -> Any:
    """Import a module of docs/site, which is no package."""
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))
    return importlib.import_module(name)


SURFACES: dict[str, Callable[[], Iterator[str]]] = {
    "python": of_python,
    "http": of_http,
    "run-yaml": of_run_yaml,
}


def recorded(surface: str) -> set[str]:
    """Return the lines of a recorded snapshot."""
    return set((HERE / f"{surface}.txt").read_text("utf-8").splitlines())


def breaking(before: set[str], now: set[str]) -> list[str]:
    """Return the breaking changes of a surface: removed or changed lines, new required fields.

    A required field of a new type is no breaking change.
    """
    places = {part for line in before for part in _name_and_place(line)}
    demanded = [
        line
        for line in sorted(now - before)
        if line.endswith(REQUIRED) and _name_and_place(line)[1] in places
    ]
    return [*(f"- {line}" for line in sorted(before - now)), *(f"+ {line}" for line in demanded)]


def _name_and_place(line: str) -> tuple[str, str]:
    """Return the name that a line is about, and the type, route or section that has it."""
    name = line.partition(": ")[0]
    return name, re.split(r"[.? ](?=[^.? ]*$)", name)[0]


if __name__ == "__main__":
    for surface, lines in SURFACES.items():
        (HERE / f"{surface}.txt").write_text("\n".join(sorted(set(lines()))) + "\n", "utf-8")
