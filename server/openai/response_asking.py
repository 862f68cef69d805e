"""Turns the body of `POST /v1/responses` into a conversation to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.api.errors import InvalidRequest, NotFound
from corral.providers.rag.answer import Ask
from corral.providers.rag.answer_events import Source
from corral.providers.stack.stack import Stack
from corral.server.access.acting import acting
from corral.server.errors import WireError
from corral.server.openai.answered_chat import vector_dbs_of
from corral.server.openai.chat import check_model
from corral.server.openai.file_search import check_stores
from corral.server.openai.response_items import Item, has_image, messages_of, read_items
from corral.server.openai.response_requests import RESULTS, CreateResponse, Tools, read_tools
from corral.server.openai.response_stream import ResponseWriter

_SEARCH = "file_search"


@dataclass(frozen=True, slots=True)
class Work:
    """A response to write.

    Attributes:
        library: The view of the vector DBs that the answer is made of: the caller's, or that
            of `as_user`.
        newest: Id of the conversation's last item when it was read; None if it had none.
        inputs: The items of this request.
        place: The request's field with the vector stores.
    """

    request: CreateResponse
    library: Stack
    ask: Ask
    newest: str | None
    inputs: list[Item]
    writer: ResponseWriter
    place: str


async def prepared(request: CreateResponse, stack: Stack) -> Work:
    """Check a request, and read the items before it.

    Raises:
        CorralError: See the table of errors in docs/answers.md.
    """
    request.check()
    tools = read_tools(request.tools or ())
    library = acting(stack, request.as_user)
    vector_db_ids = await vector_dbs_of(request.model, library)
    if vector_db_ids is None:
        check_model(library, request.model)
    elif tools.search is not None:
        raise InvalidRequest(
            "The model is a vector DB, and the tool file_search names others.",
            hint="Send a language model, or no tool.",
            field=tools.place,
        )
    if tools.search is not None:
        field = f"{tools.place}.vector_store_ids"
        await check_stores(tools.search.vector_store_ids, library, field)
    before = await _before(request, stack)
    inputs = await read_items(request.input, stack)
    messages, sources = messages_of([*before, *inputs])
    if request.instructions is not None:
        messages.insert(0, {"role": "system", "content": request.instructions})
    if not messages:
        raise InvalidRequest("input has no message.", field="input")
    with_results = RESULTS in (request.include or ())
    writer = ResponseWriter(
        {**request.echo(), "tools": list(tools.echo)}, with_results=with_results
    )
    ask = _ask(request, tools, vector_db_ids, library, messages, sources)
    if has_image([*before, *inputs]) and not library.inference(ask.model).sees_images(ask.model):
        raise WireError(
            400,
            "unsupported_value",
            f"The model {ask.model!r} reads no images.",
            hint="Models that do are named in image_models of remote::chat in run.yaml.",
            field="input",
        )
    newest = before[-1]["id"] if before else None
    return Work(request, library, ask, newest, inputs, writer, tools.place)


async def _before(request: CreateResponse, stack: Stack) -> list[Item]:
    """Return the earlier items that the request continues."""
    try:
        if request.previous_response_id is not None:
            return await stack.conversations.context(request.previous_response_id)
        if request.conversation_id is not None:
            return await stack.conversations.items(request.conversation_id)
    except NotFound as error:
        is_response = request.previous_response_id is not None
        code = "previous_response_not_found" if is_response else "conversation_not_found"
        field = "previous_response_id" if is_response else "conversation"
        raise WireError(404, code, error.message, hint=error.hint, field=field) from None
    return []


def _ask(
    request: CreateResponse,
    tools: Tools,
    vector_db_ids: list[str] | None,
    stack: Stack,
    messages: list[Mapping[str, Any]],
    sources: list[Source],
) -> Ask:
    """Return the conversation to continue, as `tool_choice` allows."""
    shared: dict[str, Any] = {
        "messages": messages,
        "sources": sources,
        "max_searches": request.max_tool_calls,
        "options": request.options(),
        "cites": request.format.type == "text",
        "drops_oldest": request.truncation == "auto",
    }
    choice, allowed = _choice(request)
    functions = [each for each in tools.functions if allowed is None or each.name in allowed]
    shared["functions"] = [each.as_chat() for each in functions]
    may_search = (allowed is None or _SEARCH in allowed) and choice != "none"
    forced = choice == _SEARCH or (choice == "required" and not functions)
    shared["tool_choice"] = choice if functions and choice not in (_SEARCH, "auto") else None
    if vector_db_ids is not None:
        model = stack.answering_model()
        return Ask(model=model, vector_db_ids=vector_db_ids, search="first", **shared)
    search = tools.search if may_search else None
    always = stack.config.answers.file_search == "always"
    if search is None:
        return Ask(model=request.model, **shared)
    is_first = forced or always
    ids = search.vector_store_ids
    if is_first and messages[-1].get("role") != "user":
        ids = [] if always else ids
        is_first = False
    return Ask(
        model=request.model,
        vector_db_ids=ids,
        config=search.config(),
        search="first" if is_first else "auto",
        **shared,
    )


def _choice(request: CreateResponse) -> tuple[Any, set[str] | None]:
    """Return `tool_choice` in the format of chat completions, and the allowed tools.

    Returns:
        `auto`, `none`, `required`, `file_search` or a function; and the names of the allowed
        functions with `file_search`, None for all.

    Raises:
        InvalidRequest: `tool_choice` is malformed.
    """
    given = request.tool_choice
    if given is None or isinstance(given, str):
        return given or "auto", None
    kind, name = given.get("type"), given.get("name")
    if kind == _SEARCH:
        return _SEARCH, None
    if kind == "function" and isinstance(name, str):
        return {"type": "function", "function": {"name": name}}, None
    tools = given.get("tools")
    if kind == "allowed_tools" and isinstance(tools, list):
        names = {
            str(each.get("name") or each.get("type")) for each in tools if isinstance(each, dict)
        }
        if given.get("mode", "auto") in ("auto", "required"):
            return given.get("mode", "auto"), names
    raise InvalidRequest(
        "tool_choice has an unknown form.",
        hint="Known: auto, none, required, {type: file_search}, {type: function, name}, "
        "{type: allowed_tools, mode, tools}.",
        field="tool_choice",
    )
