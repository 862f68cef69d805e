"""The tools as functions of OpenAI's APIs: their schemas, and the results of calls."""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from corral.api.errors import CorralError, InvalidRequest
from corral.server.access.roles import READER
from corral.server.errors import ERRORS, status_of
from corral.server.routing import ContractRoute, StackOf
from corral.server.tools.catalog import find_tool, offered
from corral.server.tools.schemas import Schema, arguments_schema, strict_schema
from corral.server.tools.tool import Tool, ToolServicesOf, counted

router = APIRouter(prefix="/v1/tools", tags=["Agents"], route_class=ContractRoute, responses=ERRORS)


class Function(BaseModel):
    """A function that a model may call."""

    name: str
    description: str
    parameters: Schema = Field(description="JSON schema, in the subset of strict calls.")
    strict: bool = True


class FunctionTool(BaseModel):
    """A tool, in the format of `tools` of /v1/chat/completions."""

    type: Literal["function"] = "function"
    function: Function


class FunctionTools(BaseModel):
    """The tools to offer a model."""

    data: list[FunctionTool]


class FunctionCall(BaseModel):
    """A model's call of a function."""

    model_config = ConfigDict(extra="ignore")

    name: str
    arguments: str = Field(description="Arguments as JSON, as the model wrote it.")


class ToolCall(BaseModel):
    """One of the `tool_calls` of a model's message."""

    model_config = ConfigDict(extra="ignore")

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ToolMessage(BaseModel):
    """A message to send with the next request."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    content: str = Field(description="The result as JSON, or what is wrong with the call.")


@router.get("/openai", summary="List the tools as OpenAI's functions")
async def functions(stack: StackOf) -> FunctionTools:
    """Return the tools as strict function schemas: pass `data` as `tools`."""
    settings = stack.config.server.tools
    return FunctionTools(data=[_function(tool) for tool in offered(settings)])


@router.post("/openai/call", summary="Answer a function call", dependencies=[READER])
async def call(request: ToolCall, services: ToolServicesOf) -> ToolMessage:
    """Run a model's tool call and return the message to send back to it.

    If the call is invalid, the message tells the model what to change.
    """
    try:
        with counted():
            tool = find_tool(request.function.name, services.settings)
            arguments = _arguments(request.function.arguments)
        answer = await tool.call(services, arguments)
    except CorralError as error:
        if status_of(error)[0] >= 500:
            raise
        return ToolMessage(tool_call_id=request.id, content=json.dumps({"error": str(error)}))
    return ToolMessage(tool_call_id=request.id, content=answer.model_dump_json())


def _arguments(given: str) -> dict[str, Any]:
    try:
        arguments = json.loads(given or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest("arguments must be a JSON object.", field="function.arguments")
    return arguments


def _function(tool: Tool[Any]) -> FunctionTool:
    parameters = strict_schema(arguments_schema(tool.arguments))
    return FunctionTool(
        function=Function(name=tool.name, description=tool.description, parameters=parameters)
    )
