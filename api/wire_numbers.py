"""Numbers and booleans on the wire: `true` is no number and `"1"` is neither, though pydantic would
read them so.
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
    kind = schema["type"]
    if kind == "bool":
        return {**schema, "strict": True}
    if kind in _NUMBERS:
        check = {"type": "no-info", "function": _int if kind == "int" else _float}
        return {"type": "function-before", "function": check, "schema": schema}
    if kind == "model" or _is_done(schema):  # a model inside is asked for itself
        return schema
    changed = {name: _refusing(schema[name]) for name in _INSIDE if name in schema}
    if kind == "list" and schema.get("items_schema", {}).get("type") in _NUMBERS:
        # A thousand numbers each: strict in pydantic's own code is as fast as not.
        changed["items_schema"] = {**schema["items_schema"], "strict": True}
    if kind == "model-fields":
        changed["fields"] = {name: _refusing(one) for name, one in schema["fields"].items()}
    if kind == "union":
        changed["choices"] = [_choice(one) for one in schema["choices"]]
    return {**schema, **changed}


def _is_done(schema: Any) -> bool:
    """Return True for what a finished model brings along where another one holds it."""
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
    """Base of models that take numbers and booleans as JSON has them, and 2.0 for 2.

    `ttl_seconds: true` would delete chunks after a second; of texts, `"yes"` and `"1"` would be
    true and `"ja"` refused.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> Any:
        """Return pydantic's schema with numbers and booleans that refuse each other and texts."""
        return _of_model(handler(source))
