"""The items of a response, and their conversion to chat messages for a language model."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import is_unicode
from corral.providers.rag.answer import FUNCTION, NOTHING_FOUND, Message, replayed
from corral.providers.rag.answer_events import Source
from corral.providers.stack.stack import Stack
from corral.server.errors import WireError

Item: TypeAlias = dict[str, Any]

MAX_ID = 255
"""Maximum length of an id, in characters."""

ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {
    "message": "msg",
    "file_search_call": "fs",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}
"""Prefixes of item ids, by type; also the types that are accepted."""
_IMAGE = "input_image"
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text"})


def new_id(kind: str) -> str:
    """Return a new id of an item or an object: a prefix and 48 hex digits."""
    return f"{_PREFIXES.get(kind, kind)}_{uuid.uuid4().hex}{uuid.uuid4().hex[:16]}"


async def read_items(given: str | Sequence[Any], stack: Stack, field: str = "input") -> list[Item]:
    """Return the items of an input, each with an id and a type; files are converted to text.

    Args:
        given: A user message, or items, from the request.
        field: The request's field with the items.

    Raises:
        InvalidRequest: An item is malformed, or of an unsupported type.
        WireError: 404 for an unknown item or file.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [await _read(each, stack, f"{field}[{place}]") for place, each in enumerate(given)]


async def _read(given: Any, stack: Stack, field: str) -> Item:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{field} must be an object.", field=field)
    kind = given.get("type") or ("message" if "role" in given else None)
    if kind == "item_reference":
        return await _referred(given, stack, field)
    if not isinstance(kind, str) or kind not in _PREFIXES:
        raise WireError(
            400,
            "unsupported_value",
            f"{field}.type is {str(kind)[:100]!r}.",
            hint=f"Known: {', '.join(_PREFIXES)}, item_reference.",
            field=f"{field}.type",
        )
    item = {**given, "id": given.get("id") or new_id(kind), "type": kind}
    _require(item, ("id",), field)
    if kind == "message":
        if given.get("role") not in ROLES:
            raise InvalidRequest(f"{field}.role must be one of {', '.join(ROLES)}.", field=field)
        content = await _content(given.get("content"), stack, f"{field}.content")
        item["content"] = _parts(content, item["role"]) if isinstance(content, str) else content
        item["status"] = "completed"
    elif kind == "file_search_call":
        _require_list(item, "queries", str, field)
        _require_list(item, "results", dict, field)
    elif kind == "function_call":
        _require(item, ("call_id", "name", "arguments"), field)
    elif kind == "function_call_output":
        _require(item, ("call_id",), field)
        item["output"] = await _content(given.get("output"), stack, f"{field}.output")
    return item


def _require(item: Item, names: Sequence[str], field: str) -> None:
    for name in names:
        if not isinstance(item.get(name), str):
            raise InvalidRequest(f"{field}.{name} must be a text.", field=f"{field}.{name}")
        if name in ("id", "call_id") and not (is_unicode(item[name]) and len(item[name]) <= MAX_ID):
            raise InvalidRequest(
                f"{field}.{name} must be Unicode of at most {MAX_ID} characters.",
                field=f"{field}.{name}",
            )


def _require_list(item: Item, name: str, of: type, field: str) -> None:
    """Raise InvalidRequest if a field is neither null nor a list of these values."""
    value = item.get(name)
    if value is None or (isinstance(value, list) and all(isinstance(each, of) for each in value)):
        return
    kind = "texts" if of is str else "objects"
    raise InvalidRequest(f"{field}.{name} must be a list of {kind}.", field=f"{field}.{name}")


async def _referred(given: Item, stack: Stack, field: str) -> Item:
    _require(given, ("id",), field)
    try:
        return await stack.conversations.item(given["id"])
    except NotFound as error:
        raise WireError(404, "item_not_found", error.message, field=f"{field}.id") from None


async def _content(given: Any, stack: Stack, field: str) -> str | list[Item]:
    """Return the content of a message: a text, or parts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise InvalidRequest(f"{field} must be a text or a list of parts.", field=field)
    return [await _part(each, stack, f"{field}[{place}]") for place, each in enumerate(given)]


def _parts(text: str, role: str) -> list[Item]:
    """Return a text as a message's only part, as OpenAI shows it."""
    if role == "assistant":
        return [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return [{"type": "input_text", "text": text}]


async def _part(given: Any, stack: Stack, field: str) -> Item:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "input_file":
        return {"type": "input_text", "text": await _file_text(given, stack, field)}
    name = {"refusal": "refusal", _IMAGE: "image_url"}.get(str(kind), "text")
    if not isinstance(kind, str) or (name == "text" and kind not in _TEXTS):
        hint = "Send input_text, input_file or input_image."
        what = f"{field}.type is {str(kind)[:100]!r}."
        raise WireError(400, "unsupported_value", what, hint=hint, field=f"{field}.type")
    if not isinstance(given.get(name), str):
        raise InvalidRequest(f"{field}.{name} must be a text.", field=f"{field}.{name}")
    annotations = given.get("annotations")
    is_list = isinstance(annotations, list)
    return {**given, **({} if is_list or annotations is None else {"annotations": []})}


async def _file_text(given: Item, stack: Stack, field: str) -> str:
    """Return the text of an input_file part, below its name."""
    names = [each for each in ("file_id", "file_data", "file_url") if given.get(each)]
    if len(names) != 1 or not isinstance(given[names[0]], str):
        raise InvalidRequest(f"{field} needs a file_id, file_data or file_url.", field=field)
    value: str = given[names[0]]
    title = str(given.get("filename") or "file")
    if names[0] == "file_id":
        try:
            file = await stack.files.get(value)
        except NotFound as error:
            raise WireError(
                404, "file_not_found", error.message, field=f"{field}.file_id"
            ) from None
        return f"{file.filename}:\n{await stack.ingestion.text_of(file)}"
    if names[0] == "file_data" and not value.startswith("data:"):
        value = f"data:application/octet-stream;base64,{value}"
    try:
        return f"{title}:\n{await stack.ingestion.text_of(value)}"
    except InvalidRequest as error:
        error.field = f"{field}.{names[0]}"
        raise


def messages_of(items: Sequence[Item]) -> tuple[list[Message], list[Source]]:
    """Convert items to messages for a language model, and return these and their sources.

    A file search becomes a function call with its results, so that the model sees the same sources
    again, numbered consecutively over all searches. Reasoning is omitted.

    Raises:
        InvalidRequest: An output has no function call before it.
    """
    messages: list[Message] = []
    sources: list[Source] = []
    calls: set[str] = set()
    for item in items:
        kind = item["type"]
        if kind == "message":
            messages.append(_message(item, sources))
        elif kind == "file_search_call" and item.get("results"):
            queries = item.get("queries") or []
            results = [_source(each) for each in item["results"] if each.get("included", True)]
            text, shown = replayed(" ".join(queries), results, len(sources) + 1)
            sources += shown
            _add_call(messages, item["id"], FUNCTION, json.dumps({"queries": queries}))
            messages.append(_output(item["id"], text if shown else NOTHING_FOUND))
        elif kind == "function_call":
            calls.add(item["call_id"])
            _add_call(messages, item["call_id"], item["name"], item["arguments"])
        elif kind == "function_call_output":
            if item["call_id"] not in calls:
                raise InvalidRequest(
                    f"No function_call has the call_id {item['call_id'][:100]!r}.", field="input"
                )
            messages.append(_output(item["call_id"], _text(item["output"])))
    return messages, sources


def has_image(items: Sequence[Item]) -> bool:
    """Return True if a message has an image."""
    contents = (item["content"] for item in items if item["type"] == "message")
    return any(part["type"] == _IMAGE for content in contents for part in content)


def _message(item: Item, sources: Sequence[Source]) -> Message:
    role = "system" if item["role"] == "developer" else item["role"]
    content: list[Item] = item["content"]
    if role == "assistant":
        return {"role": role, "content": "".join(_marked(part, sources) for part in content)}
    if has_image([item]):
        return {"role": role, "content": [_chat_part(part) for part in content]}
    return {"role": role, "content": _text(content)}


def _chat_part(part: Item) -> Item:
    """Convert a part of a message to the format of chat completions."""
    if part["type"] != _IMAGE:
        return {"type": "text", "text": _text([part])}
    detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
    return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}


def _text(content: str | Sequence[Item]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or part.get("refusal") or "" for part in content)


def _marked(part: Item, sources: Sequence[Source]) -> str:
    """Return the text of an answer with its citation markers, as the model wrote it."""
    text: str = part.get("text") or part.get("refusal") or ""
    numbers = {(each.vector_db_id, each.chunk.chunk_id): each.number for each in sources}
    cited = [
        (each["index"], numbers.get((each["vector_store_id"], each["chunk_id"])))
        for each in part.get("annotations") or ()
        if isinstance(each, dict) and isinstance(each.get("index"), int)
        if isinstance(each.get("chunk_id"), str) and isinstance(each.get("vector_store_id"), str)
    ]
    for index, number in sorted(cited, key=lambda one: one[0], reverse=True):
        if number is not None:
            text = f"{text[:index]} [{number}]{text[index:]}"
    return text


def _add_call(messages: list[Message], call_id: str, name: str, arguments: str) -> None:
    """Add a function call; consecutive calls form one message."""
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and last.get("tool_calls"):
        messages[-1] = {**last, "tool_calls": [*last["tool_calls"], call]}
    elif last.get("role") == "assistant":
        messages[-1] = {**last, "tool_calls": [call]}
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _output(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _source(result: Mapping[str, Any]) -> Source:
    """Return a result of an earlier search as a source without a number."""
    attributes = result.get("attributes")
    names = {name: str(result.get(name) or "") for name in ("file_id", "filename")}
    place = {
        name: result[name]
        for name in ("page", "char_start", "char_end")
        if isinstance(result.get(name), int)
    }
    text = str(result.get("text") or "")
    chunk = Chunk(
        content=text,
        chunk_id=str(result.get("chunk_id") or new_id("chunk")),
        metadata={**(attributes if isinstance(attributes, dict) else {}), **names},
        chunk_metadata=ChunkMetadata.model_construct(**place),
    )
    score = result.get("score")
    score = float(score) if isinstance(score, int | float) else 0.0
    return Source(0, str(result.get("vector_store_id") or ""), chunk, score, text, place)
