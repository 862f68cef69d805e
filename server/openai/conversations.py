"""Conversations: responses read their items before the input, and add items to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import ConfigDict, Field

from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire_numbers import ExactNumbers
from corral.providers.conversations.table import Conversation
from corral.server.access.roles import READER
from corral.server.errors import ERRORS, WireError
from corral.server.openai.paging import CursorOf, page_of_items
from corral.server.openai.response_items import read_items
from corral.server.openai.response_requests import Metadata, WithResults
from corral.server.openai.response_stream import shown_item
from corral.server.openai.routes import OpenAIRoute, json_response
from corral.server.routing import StackOf

router = APIRouter(
    prefix="/v1/conversations", tags=["Answers"], route_class=OpenAIRoute, responses=ERRORS
)

MAX_ITEMS = 20
"""Maximum number of items that a request can add."""

Items = Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)]


class CreateConversation(ExactNumbers):
    """A new conversation."""

    model_config = ConfigDict(extra="forbid")

    items: Items | None = None
    metadata: Metadata | None = None


class UpdateConversation(ExactNumbers):
    """The new metadata, which replaces the old."""

    model_config = ConfigDict(extra="forbid")

    metadata: Metadata


class AddItems(ExactNumbers):
    """Items to add."""

    model_config = ConfigDict(extra="forbid")

    items: Annotated[Items, Field(min_length=1)]


async def _identifier(conversation_id: str) -> str:
    if not conversation_id.startswith("conv_"):
        raise InvalidRequest("The id of a conversation begins with conv_.", field="conversation_id")
    return conversation_id


ConversationId = Annotated[str, Depends(_identifier)]


@router.post("", summary="Create a conversation", dependencies=[READER])
async def create(request: CreateConversation, stack: StackOf) -> Response:
    """Create a conversation, empty or with items."""
    items = await read_items(request.items or [], stack, "items")
    return _shown(await stack.conversations.create(request.metadata or {}, items))


@router.get("/{conversation_id}", summary="Get a conversation")
async def retrieve(conversation_id: ConversationId, stack: StackOf) -> Response:
    """Return a conversation."""
    with _not_found():
        return _shown(await stack.conversations.get(conversation_id))


@router.post("/{conversation_id}", summary="Change a conversation", dependencies=[READER])
async def update(
    conversation_id: ConversationId, request: UpdateConversation, stack: StackOf
) -> Response:
    """Replace the metadata of a conversation."""
    with _not_found():
        return _shown(await stack.conversations.update(conversation_id, request.metadata))


@router.delete("/{conversation_id}", summary="Delete a conversation", dependencies=[READER])
async def delete(conversation_id: ConversationId, stack: StackOf) -> Response:
    """Delete a conversation with its items; responses that were stored remain."""
    with _not_found():
        await stack.conversations.delete(conversation_id)
    deleted = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
    return json_response(deleted)


@router.post("/{conversation_id}/items", summary="Add items", dependencies=[READER])
async def add_items(conversation_id: ConversationId, request: AddItems, stack: StackOf) -> Response:
    """Add items at the end of a conversation, and return them."""
    with _not_found():
        await stack.conversations.get(conversation_id)
        items = await read_items(request.items, stack, "items")
        await stack.conversations.add(conversation_id, items)
    shown = [shown_item(each, with_results=False) for each in items]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]}
    return json_response({"object": "list", "data": shown, **ends, "has_more": False})


@router.get("/{conversation_id}/items", summary="List items")
async def list_items(
    conversation_id: ConversationId, stack: StackOf, cursor: CursorOf, with_results: WithResults
) -> Response:
    """Return a page of the items of a conversation."""
    with _not_found():
        items = await stack.conversations.items(conversation_id)
    shown = [shown_item(each, with_results=with_results) for each in items]
    return json_response(page_of_items(shown, cursor))


@router.get("/{conversation_id}/items/{item_id}", summary="Get an item")
async def retrieve_item(
    conversation_id: ConversationId, item_id: str, stack: StackOf, with_results: WithResults
) -> Response:
    """Return an item of a conversation."""
    with _not_found():
        items = await stack.conversations.items(conversation_id)
    for item in items:
        if item["id"] == item_id:
            return json_response(shown_item(item, with_results=with_results))
    raise _no_item(f"There is no item {item_id[:100]!r}.")


@router.delete(
    "/{conversation_id}/items/{item_id}", summary="Delete an item", dependencies=[READER]
)
async def delete_item(conversation_id: ConversationId, item_id: str, stack: StackOf) -> Response:
    """Delete an item, and return its conversation."""
    with _not_found():
        await stack.conversations.remove(conversation_id, item_id)
        return _shown(await stack.conversations.get(conversation_id))


def _shown(conversation: Conversation) -> Response:
    return json_response(
        {
            "id": conversation.conversation_id,
            "object": "conversation",
            "created_at": conversation.created_at,
            "metadata": conversation.metadata,
        }
    )


@contextmanager
def _not_found() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        if error.field == "item_id":
            raise _no_item(error.message) from None
        raise WireError(
            404, "conversation_not_found", error.message, hint=error.hint, field="conversation_id"
        ) from None


def _no_item(message: str) -> WireError:
    return WireError(404, "item_not_found", message, field="item_id")
