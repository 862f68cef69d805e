"""Chat requests for llama.cpp: only allowed OpenAI fields, with values in range.

llama.cpp reads many more fields, some of which name files or addresses. It compiles JSON schemas to
grammars, and a few large numbers in a schema can exhaust the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from corral.api.errors import Refused
from corral.api.provider import ChatRequest
from corral.api.wire import encodable
from corral.providers.inference.llama_cpp.config import LlamaModel

FIELDS = (
    "messages",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
LIMITS = ("max_completion_tokens", "max_tokens")
RANDOM_SEED = 2**32 - 1
"""llama.cpp's seeds are below this number, which requests a random seed."""

MAX_SCHEMA_CHARS = 100_000
MAX_PROPERTIES = 200
MAX_REPETITIONS = 1000
MAX_NUMBER = 10**12
_REPETITIONS = ("minLength", "maxLength", "minItems", "maxItems")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_VALUES = ("const", "default", "enum", "examples")


def request_text(request: ChatRequest, model: LlamaModel) -> str:
    """Return the JSON text of a request: streamed, with progress and usage.

    Raises:
        Refused: A number or a schema is out of range.
    """
    body = {name: request[name] for name in FIELDS if request.get(name) is not None}
    body["max_tokens"] = min(_max_tokens(request, model), model.context_tokens)
    if "seed" in body:
        body["seed"] = _integer("seed", body["seed"]) % RANDOM_SEED
    for name in ("response_format", "tools"):
        if name in body:
            body[name] = _checked(name, body[name])
    # Each batch of a prompt then reports back, so that a long prompt can be stopped too.
    body |= {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
    return encodable(_json("the request", body))


def _max_tokens(request: ChatRequest, model: LlamaModel) -> int:
    for name in LIMITS:
        if request.get(name) is not None:
            return _integer(name, request[name], at_least=1)
    return model.max_output_tokens


def _integer(name: str, value: object, at_least: int | None = None) -> int:
    if type(value) is not int or (at_least is not None and value < at_least):
        bound = "" if at_least is None else f" >= {at_least}"
        raise Refused(f"{name} must be an integer{bound}.", code="invalid_value")
    return value


def _checked(name: str, value: Any) -> Any:
    """Return a field with JSON schemas, with numbers in range and without regular expressions."""
    if len(_json(name, value)) > MAX_SCHEMA_CHARS:
        raise Refused(f"{name} must have <= {MAX_SCHEMA_CHARS} characters.", code="invalid_value")
    for schema in _schemas(value):
        _check_bounds(name, schema)
    return _without_patterns(value)


def _schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a value that may be schemas, outer ones first."""
    if isinstance(value, dict):
        yield value
        for key, each in value.items():
            if key not in _VALUES:
                yield from _schemas(each)
    elif isinstance(value, list):
        for each in value:
            yield from _schemas(each)


def _check_bounds(name: str, schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict) and len(properties) > MAX_PROPERTIES:
        raise Refused(f"{name}: an object has > {MAX_PROPERTIES} properties.", code="invalid_value")
    for keywords, most in ((_REPETITIONS, MAX_REPETITIONS), (_NUMBERS, MAX_NUMBER)):
        for keyword in keywords:
            number = schema.get(keyword)
            if isinstance(number, int | float) and abs(number) > most:
                raise Refused(
                    f"{name}: {keyword} must be between {-most} and {most}.", code="invalid_value"
                )


def _without_patterns(value: Any) -> Any:
    """Remove `pattern` from schemas: llama.cpp prints patterns that it cannot compile."""
    if isinstance(value, list):
        return [_without_patterns(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each if key in _VALUES else _without_patterns(each)
        for key, each in value.items()
        if not (key == "pattern" and isinstance(each, str))
    }


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise Refused(f"{name} must be finite JSON.", code="invalid_value") from None
