"""Strict numbers and booleans on the wire.

`true` is not a number, and `"1"` is neither a number nor a boolean, although pydantic would convert
them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler

_NUMBERS = ("int", "float")
_INSIDE = ("schema", "items_schema", "values_schema")


def _of_model(schema: Any) -> Any:
    if schema["type"] == "model":
        return {**schema, "schema": _refusing(schema["schema"])}
    inner = schema.get("schema")
    return {**schema, "schema": _of_model(inner)} if inner else schema


def _refusing(schema: Any) -> Any:
    if isinstance(schema, list):  # the items of a tuple
        return [_refusing(one) for one in schema]
    kind = schema["type"]
    if kind == "bool":
        return {**schema, "strict": True}
    if kind in _NUMBERS:
        check = {"type": "no-info", "function": _int if kind == "int" else _float}
        return {"type": "function-before", "function": check, "schema": schema}
    if kind == "model" or _is_done(schema):  # a nested model has its own schema hook
        return schema
    changed = {name: _refusing(schema[name]) for name in _INSIDE if name in schema}
    if kind == "list" and schema.get("items_schema", {}).get("type") in _NUMBERS:
        # An embedding has a thousand numbers; strict mode in pydantic's own code costs no time.
        changed["items_schema"] = {**schema["items_schema"], "strict": True}
    if kind == "model-fields":
        changed["fields"] = {name: _refusing(one) for name, one in schema["fields"].items()}
    if kind == "union":
        changed["choices"] = [_choice(one) for one in schema["choices"]]
    return {**schema, **changed}


def _is_done(schema: Any) -> bool:
    """Return True for a schema of a nested model that already has these checks."""
    return schema["type"] == "function-before" and schema["function"]["function"] in (_int, _float)


def _choice(choice: Any) -> Any:
    if isinstance(choice, tuple):
        return _refusing(choice[0]), *choice[1:]
    return _refusing(choice)


def _int(value: Any) -> Any:
    if isinstance(value, str | bytes):
        raise ValueError("must be an integer (got a string)")
    return _no_boolean(value)


def _float(value: Any) -> Any:
    if isinstance(value, str | bytes):
        raise ValueError("must be a number (got a string)")
    return _no_boolean(value)


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, not a boolean (got {str(value).lower()})")
    return value


class ExactNumbers(BaseModel):
    """Base of models that accept only JSON numbers and booleans, and 2.0 for 2.

    With pydantic's conversions, `ttl_seconds: true` would delete chunks after a second, and the
    strings `"yes"` and `"1"` would be true while `"ja"` would be an error.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> Any:
        """Return pydantic's schema with strict numbers and booleans."""
        return _of_model(handler(source))
