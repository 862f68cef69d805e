"""The body of `POST /v1/responses`, and the fields of it that a response repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from fastapi import Depends, Query
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from corral.api.errors import InvalidRequest
from corral.api.options import checked
from corral.api.wire import Strict, is_unicode
from corral.api.wire_numbers import ExactNumbers
from corral.server.access.acting import AsUser
from corral.server.errors import WireError
from corral.server.openai.file_search import FileSearchTool, in_field

MAX_ITEMS = 2048
MAX_TOOLS = 128

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]
"""Pairs of text that clients store with a response or a conversation."""

Include: TypeAlias = Literal[
    "file_search_call.results",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
"""Values of `include`; only `file_search_call.results` has an effect."""
RESULTS = "file_search_call.results"


def _unicode(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("must be Unicode, without lone surrogates")
    return text


async def _with_results(
    include: Annotated[list[Include] | None, Query(description="As in POST.")] = None,
    bracketed: Annotated[
        list[Include] | None, Query(alias="include[]", include_in_schema=False)
    ] = None,
) -> bool:
    return RESULTS in {*(include or ()), *(bracketed or ())}


WithResults = Annotated[bool, Depends(_with_results)]
"""True if `include` asks for the results of searches; OpenAI's client writes `include[]`."""


Reference: TypeAlias = Annotated[str, Field(max_length=255), AfterValidator(_unicode)]
"""The id of a response or of a conversation."""


class TextFormat(Strict):
    """The form of the answer: text, JSON, or JSON of a schema."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = Field(default=None, max_length=64)
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    description: str | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if self.type == "json_schema" and not (self.name and self.schema_ is not None):
            raise ValueError("json_schema needs a name and a schema")
        return self

    def response_format(self) -> dict[str, Any] | None:
        """Return the format for chat completions; None for text."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "json_object"}
        named = self.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
        return {"type": "json_schema", "json_schema": named}


class TextSettings(ExactNumbers):
    """Settings of the text of an answer."""

    model_config = ConfigDict(extra="forbid")

    format: TextFormat = Field(default_factory=TextFormat)
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(ExactNumbers):
    """Settings of reasoning models."""

    model_config = ConfigDict(extra="ignore")

    effort: str | None = Field(default=None, max_length=32)
    summary: str | None = Field(default=None, max_length=32)


class ConversationReference(Strict):
    """A conversation, by its id."""

    id: Reference


class StreamOptions(Strict):
    """Options of a stream."""

    include_obfuscation: bool | None = Field(default=None, description="No effect.")


class FunctionTool(ExactNumbers):
    """A function of the client that the model may call."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=255)
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None

    def as_chat(self) -> dict[str, Any]:
        """Return the tool in the format of chat completions."""
        return {
            "type": "function",
            "function": self.model_dump(exclude={"type"}, exclude_none=True),
        }

    def echo(self) -> dict[str, Any]:
        """Return the tool as a response repeats it."""
        return self.model_dump()


_Ignored: TypeAlias = Annotated[Any, Field(default=None, exclude=True, description="No effect.")]


class CreateResponse(ExactNumbers):
    """A question, or a conversation to continue."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=255, description="A model of `GET /v1/models`.")
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_ITEMS)] = Field(
        description="A message of the user, or items."
    )
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    include: list[Include] | None = None
    previous_response_id: Reference | None = None
    conversation: Reference | ConversationReference | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    max_output_tokens: int | None = Field(default=None, ge=16)
    max_tool_calls: int | None = Field(default=None, ge=1)
    parallel_tool_calls: bool | None = None
    text: TextSettings | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = Field(default=None, max_length=64)
    service_tier: str | None = Field(default=None, max_length=32)
    prompt: dict[str, Any] | None = Field(default=None, description="Must be null.")
    as_user: AsUser | None = Field(
        default=None,
        description="For admins: answer from what a reader with this name and these groups may "
        "read. Not with previous_response_id or conversation.",
    )

    prompt_cache_options: _Ignored
    prompt_cache_retention: _Ignored
    context_management: _Ignored
    moderation: _Ignored
    access_programs: _Ignored
    background_options: _Ignored
    image: _Ignored

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation."""
        given = self.conversation
        return given.id if isinstance(given, ConversationReference) else given

    @property
    def format(self) -> TextFormat:
        """The form of the answer."""
        return self.text.format if self.text else TextFormat()

    def check(self) -> None:
        """Raise for unsupported fields.

        Raises:
            InvalidRequest, WireError: 400, with the field.
        """
        if self.background:
            raise _unsupported("background", "Responses are not written in the background.")
        if self.prompt is not None:
            raise _unsupported("prompt", "There are no stored prompts.")
        if self.previous_response_id is not None and self.conversation is not None:
            raise InvalidRequest(
                "previous_response_id and conversation both say what came before.",
                hint="Send one of them.",
                field="previous_response_id",
            )
        given = self.conversation_id
        if self.as_user is not None and (self.previous_response_id or given):
            raise InvalidRequest(
                "as_user cannot continue your own conversation: the other user may not read it.",
                hint="Leave previous_response_id and conversation out.",
                field="as_user",
            )
        if given is not None and not given.startswith("conv_"):
            raise InvalidRequest("conversation must be an id: conv_...", field="conversation")

    def options(self) -> dict[str, Any]:
        """Return the fields of a chat completion that a language model gets."""
        named = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "max_tokens": self.max_output_tokens,
            "response_format": self.format.response_format(),
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "user": self.user,
        }
        return {name: value for name, value in named.items() if value is not None}

    def echo(self) -> dict[str, Any]:
        """Return the fields that a response repeats, with their defaults; without the tools."""

        def given(name: str, default: Any) -> Any:
            value = getattr(self, name)
            return default if value is None else value

        text = self.text or TextSettings()
        shown = {"format": text.format.model_dump(by_alias=True, exclude_none=True)}
        reasoning = self.reasoning or Reasoning()
        conversation = self.conversation_id
        return {
            "background": False,
            "conversation": None if conversation is None else {"id": conversation},
            "frequency_penalty": given("frequency_penalty", 0.0),
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": given("metadata", {}),
            "model": self.model,
            "parallel_tool_calls": given("parallel_tool_calls", True),
            "presence_penalty": given("presence_penalty", 0.0),
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "store": given("store", True),
            "temperature": given("temperature", 1.0),
            "text": {**shown, **({"verbosity": text.verbosity} if text.verbosity else {})},
            "tool_choice": given("tool_choice", "auto"),
            "top_logprobs": given("top_logprobs", 0),
            "top_p": given("top_p", 1.0),
            "truncation": given("truncation", "disabled"),
            "user": self.user,
        }


def _unsupported(field: str, message: str) -> WireError:
    return WireError(400, "unsupported_value", message, field=field)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of a request.

    Attributes:
        search: None for no search.
        place: The request's field with the search.
        functions: The functions of the client.
        echo: All tools, as a response repeats them.
    """

    search: FileSearchTool | None = None
    place: str = ""
    functions: tuple[FunctionTool, ...] = ()
    echo: tuple[dict[str, Any], ...] = ()


def read_tools(given: Sequence[dict[str, Any]]) -> Tools:
    """Return the tools; several searches become one over all their vector stores.

    The options of the first search are used.

    Raises:
        InvalidRequest, WireError: 400 for a tool that is malformed or of another type.
    """
    read: list[FunctionTool | FileSearchTool] = []
    place = ""
    for number, each in enumerate(given):
        field = f"tools[{number}]"
        tool = _read_tool(each, field)
        first = next((one for one in read if isinstance(one, FileSearchTool)), None)
        if isinstance(tool, FunctionTool) or first is None:
            place = place or ("" if isinstance(tool, FunctionTool) else field)
            read.append(tool)
        else:
            stores = dict.fromkeys([*first.vector_store_ids, *tool.vector_store_ids])
            first.vector_store_ids = list(stores)
    return Tools(
        next((one for one in read if isinstance(one, FileSearchTool)), None),
        place,
        tuple(one for one in read if isinstance(one, FunctionTool)),
        tuple(one.echo() for one in read),
    )


def _read_tool(given: dict[str, Any], field: str) -> FunctionTool | FileSearchTool:
    kind = given.get("type")
    try:
        if kind == "function":
            return checked(FunctionTool, given)
        if kind == "file_search":
            tool = checked(FileSearchTool, given)
            tool.config()
            return tool
    except InvalidRequest as error:
        raise in_field(error, field) from None
    raise WireError(
        400,
        "unsupported_value",
        f"{field}.type is {str(kind)[:100]!r}.",
        hint="Known: file_search, function.",
        field=f"{field}.type",
    )
