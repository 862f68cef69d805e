"""JSON schemas of the tools' arguments, for models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from corral.api.filters import MAX_VALUES

Schema = dict[str, Any]

_SCALAR: Schema = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
FILTER: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["eq", "ne", "gt", "gte", "lt", "lte"]},
                "key": {"type": "string", "description": "A metadata key."},
                "value": _SCALAR,
            },
            "required": ["type", "key", "value"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["in", "nin"]},
                "key": {"type": "string", "description": "A metadata key."},
                "value": {"type": "array", "items": _SCALAR, "maxItems": MAX_VALUES},
            },
            "required": ["type", "key", "value"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["and", "or"]},
                "filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}, "minItems": 1},
            },
            "required": ["type", "filters"],
            "additionalProperties": False,
        },
    ]
}
"""The schema of a filter for models, because the schema of `WireFilter` is only an object."""

_UNSUPPORTED = ("default", "title", "minLength", "maxLength")
"""Keywords that strict function calls do not support, or do not need."""


def arguments_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON schema of a tool's arguments."""
    schema = model.model_json_schema()
    if "filters" in schema["properties"]:
        description = schema["properties"]["filters"].get("description", "")
        reference = {
            "anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}],
            "description": description,
        }
        schema["properties"]["filters"] = reference
        schema["$defs"] = {**schema.get("$defs", {}), "Filter": FILTER}
    return schema


def strict_schema(schema: Schema) -> Schema:
    """Return a schema in the subset that strict function calls accept.

    There, every property is required, so one with a default also accepts null, and objects allow no
    additional keys.
    """
    made: Schema = {key: _strict(value) for key, value in schema.items() if key not in _UNSUPPORTED}
    if "properties" in schema:
        required = schema.get("required", [])
        made["properties"] = {
            name: strict_schema(each) if name in required else _nullable(strict_schema(each))
            for name, each in schema["properties"].items()
        }
        made["required"] = list(schema["properties"])
        made["additionalProperties"] = False
    if "$defs" in schema:
        made["$defs"] = {name: strict_schema(each) for name, each in schema["$defs"].items()}
    return made


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return strict_schema(value)
    return [_strict(each) for each in value] if isinstance(value, list) else value


def _nullable(schema: Schema) -> Schema:
    options = schema.get("anyOf")
    if options is not None:
        null = [] if {"type": "null"} in options else [{"type": "null"}]
        return {**schema, "anyOf": [*options, *null]}
    description = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [inner, {"type": "null"}]}
