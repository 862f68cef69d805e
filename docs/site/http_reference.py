"""Make the HTTP reference from the OpenAPI document of the app."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

_REF = "#/components/schemas/"


def http_reference(schema: Json) -> str:
    """Return a page of Markdown with every route, its parameters, its body and its types."""
    parts = ["# HTTP reference\n\nThe running server shows the same, to try out, at `/docs`.\n"]
    by_tag: dict[str, list[str]] = {}
    used: dict[str, None] = {}
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            tag = (route.get("tags") or ["Other"])[0]
            text = "\n".join(_route(method, path, route, schema))
            by_tag.setdefault(tag, []).append(text)
    for tag, routes in by_tag.items():
        parts += [f"## {tag}\n", *routes]
    _add_types("\n".join(parts), schema, used)
    parts.append("## Types\n")
    for name in sorted(used):
        parts += _type(name, schema["components"]["schemas"][name])
    return "\n".join(parts)


def _add_types(text: str, schema: Json, used: dict[str, None]) -> None:
    """Collect the types that a text links to, and those that these link to."""
    for name in re.findall(r"\]\(#type-([\w-]+)\)", text):
        known = next(n for n in schema["components"]["schemas"] if _anchor(n) == name)
        if known not in used:
            used[known] = None
            _add_types(
                "\n".join(_type(known, schema["components"]["schemas"][known])), schema, used
            )


def _route(method: str, path: str, route: Json, schema: Json) -> Iterator[str]:
    summary = route.get("summary", "")
    end = "" if summary.endswith("?") else "."
    yield f"### {method.upper()} `{path}`\n\n**{summary}{end}** {route.get('description', '')}\n"
    yield from _parameters(route.get("parameters", ()))
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        yield from _body(kind, content.get("schema", {}), schema)
    answers = route.get("responses", {}).get("200", {}).get("content", {})
    types = {as_type(content.get("schema", {})) for content in answers.values()} - {"any"}
    if types:
        yield f"Answers with {' or '.join(sorted(types))}.\n"


def _parameters(parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield "| parameter | in | type | default | meaning |\n|---|---|---|---|---|"
    for each in parameters:
        node = {"description": each.get("description", ""), **each.get("schema", {})}
        if node["description"] == f"`{each['name']}`.":
            node["description"] = ""  # it has a name that says all
        default = as_default(node, required=each.get("required", False))
        row = f"`{each['name']}`", each["in"], as_type(node), default, as_cell(node["description"])
        yield f"| {' | '.join(row)} |"
    yield ""


def _body(kind: str, node: Json, schema: Json) -> Iterator[str]:
    name = node.get("$ref", "").removeprefix(_REF)
    if name:
        of_json = "" if kind == "application/json" else f" (`{kind}`)"
        yield f"The body{of_json}:\n"
        yield from _fields(schema["components"]["schemas"][name])
    else:
        yield f"The body is `{kind}`.\n"


def _type(name: str, node: Json) -> Iterator[str]:
    yield f"### {name} {{#type-{_anchor(name)}}}\n"
    yield node.get("description", "").partition("\n\nAttributes:")[0] + "\n"
    if node.get("properties"):
        yield from _fields(node)
    else:
        yield f"{as_type(node)}\n"


def _fields(node: Json) -> Iterator[str]:
    required = set(node.get("required", ()))
    if not node.get("properties"):
        return
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    for key, value in node["properties"].items():
        default = as_default(value, required=key in required)
        meaning = as_cell(value.get("description", ""))
        yield f"| `{key}` | {as_type(value)} | {default} | {meaning} |"
    yield ""


def as_default(node: Json, *, required: bool) -> str:
    """Return the cell of a field's default; "required" if it must be given."""
    if required or "default" not in node:
        return "required" if required else ""
    text = json.dumps(node["default"], ensure_ascii=False)
    return f"`{as_cell(text)}`"


def as_type(node: Json) -> str:
    """Return a node's type and range in words, with links to the types of the HTTP reference."""
    if "$ref" in node:
        name = node["$ref"].removeprefix(_REF)
        return f"[{name}](#type-{_anchor(name)})"
    kinds = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
    if kinds:
        return " or ".join(dict.fromkeys(as_type(kind) for kind in kinds))
    if "const" in node or "enum" in node:
        values = node["enum"] if "enum" in node else [node["const"]]
        return ", ".join(f"`{as_cell(json.dumps(value))}`" for value in values)
    if node.get("type") == "array":
        items = as_type(node.get("items", {}))
        return f"list of ({items})" if " or " in items else f"list of {items}"
    extra = node.get("additionalProperties")
    if node.get("type") == "object" and isinstance(extra, dict) and extra:
        return f"object of {as_type(extra)}"
    return f"{node.get('type', 'any')}{_range(node)}"


def _range(node: Json) -> str:
    limits = {
        ">=": node.get("minimum", node.get("minLength")),
        "<=": node.get("maximum", node.get("maxLength")),
        ">": node.get("exclusiveMinimum"),
        "<": node.get("exclusiveMaximum"),
    }
    told = [f"{sign} {_number(limit)}" for sign, limit in limits.items() if limit is not None]
    unit = " characters" if node.get("type") == "string" and told else ""
    return f" ({', '.join(told)}{unit})" if told else ""


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def as_cell(text: str) -> str:
    """Return a text on one line, whose bars do not end the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
