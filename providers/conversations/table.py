"""Stored responses and conversations: JSON objects and their items.

Each belongs to one caller: the tenant and API key that created it, or the tenant and user of a
token. It is hidden from all other callers.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    delete,
    insert,
    literal,
    select,
    tuple_,
    union_all,
    update,
)

from corral.api.errors import Conflict, NotFound
from corral.api.principal import Principal
from corral.providers.state.state import State, upsert
from corral.providers.state.tables import CONVERSATIONS, ITEMS, RESPONSES

LOCK_SECONDS = 900.0
"""Time after which a conversation is unlocked if the answering process was killed."""
MAX_CHAIN = 1000
"""Maximum length of a chain of responses that continue each other."""

_RESPONSES, _CONVERSATIONS, _ITEMS = RESPONSES.c, CONVERSATIONS.c, ITEMS.c

Item: TypeAlias = dict[str, Any]
"""An item of a conversation as in OpenAI's Responses API, with an `id`."""

Part: TypeAlias = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation.

    Attributes:
        created_at: Time of creation in Unix seconds.
    """

    conversation_id: str
    created_at: int
    metadata: dict[str, str]


class ConversationTable:
    """All callers' responses and conversations; safe for tasks and processes.

    Args:
        state: The tables.
        clock: Returns the time, in Unix seconds.
    """

    def __init__(self, state: State, clock: Callable[[], float] = time.time) -> None:
        self.area = state.area("conversations")
        self.clock = clock

    def of(self, principal: Principal) -> Conversations:
        """Return the responses and conversations of a caller."""
        user = f"user:{principal.user}" if principal.user else ""
        owner = f"key:{principal.key_id}" if principal.key_id else user
        return Conversations(self, principal.tenant, owner)

    async def expire(self, seconds: float) -> None:
        """Delete responses older than a time, and conversations unchanged since then."""
        due = int(self.clock() - seconds)
        old = {
            RESPONSES: _RESPONSES.created_at < due,
            CONVERSATIONS: _CONVERSATIONS.changed_at < due,
        }
        ids = [select(table.c.id).where(condition) for table, condition in old.items()]

        def write(connection: Connection) -> None:
            for query in ids:
                connection.execute(delete(ITEMS).where(_ITEMS.holder.in_(query)))
            for table, condition in old.items():
                connection.execute(delete(table).where(condition))

        if await self.area.read(union_all(*ids).limit(1)):
            await self.area.write(write)


class Conversations:
    """The responses and conversations of one caller.

    Args:
        table: The table of all callers.
        tenant, owner: The caller.
    """

    def __init__(self, table: ConversationTable, tenant: str, owner: str) -> None:
        self._area, self._clock = table.area, table.clock
        self._tenant, self._owner = tenant, owner

    # --- responses ---------------------------------------------------------------------------

    async def save(
        self,
        response: Mapping[str, Any],
        inputs: Sequence[Item],
        conversation_id: str | None = None,
        *,
        is_stored: bool = True,
    ) -> None:
        """Store a response with its items, and add the items to its conversation; all or nothing.

        Args:
            response: The response as returned to clients, with its `output`.
            inputs: The response's own input, without the items of earlier responses.
            conversation_id: The conversation, which is unlocked; None for none.
            is_stored: False to add to the conversation only.

        Raises:
            NotFound: The conversation was deleted.
        """
        body = {name: value for name, value in response.items() if name != "output"}
        output = list(response["output"])
        row = {
            "id": response["id"],
            "tenant": self._tenant,
            "owner": self._owner,
            "created_at": int(response["created_at"]),
            "model": response.get("model"),
            "previous": response["previous_response_id"],
            "body": json.dumps(body),
        }

        def write(table: Connection) -> None:
            if is_stored:
                table.execute(insert(RESPONSES), row)
                _add(table, response["id"], "input", inputs)
                _add(table, response["id"], "output", output)
            if conversation_id is not None:
                self._change(table, conversation_id, locked_until=0.0)
                _add(table, conversation_id, "input", [*inputs, *output])

        await self._area.write(write)

    async def response(self, response_id: str) -> dict[str, Any]:
        """Return a stored response, with its output.

        Raises:
            NotFound: The response does not exist.
        """
        query = select(_RESPONSES.body).where(_RESPONSES.id == response_id, self._mine(RESPONSES))
        rows = await self._area.read(query)
        if not rows:
            raise _no_response(response_id)
        output = await self._items(response_id, "output")
        return {**json.loads(rows[0][0]), "output": output}

    async def responses(
        self,
        *,
        after: str | None = None,
        limit: int = 50,
        order: Literal["asc", "desc"] = "desc",
        model: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return stored responses by creation time, each with its input and output.

        Args:
            after: The response to start after.
            limit: Maximum number of responses.
            model: Only responses of this model; None for all models.

        Raises:
            NotFound: The response `after` does not exist.
        """
        query = select(_RESPONSES.id, _RESPONSES.body).where(self._mine(RESPONSES))
        if model is not None:
            query = query.where(_RESPONSES.model == model)
        place = tuple_(_RESPONSES.created_at, _RESPONSES.number)
        if after is not None:
            start = select(_RESPONSES.created_at, _RESPONSES.number)
            start = start.where(_RESPONSES.id == after, self._mine(RESPONSES))
            found = await self._area.read(start)
            if not found:
                raise NotFound(f"Response {after!r} not found.", field="after")
            query = query.where(place < found[0] if order == "desc" else place > found[0])
        ways = [column.desc() if order == "desc" else column.asc() for column in place]
        return [
            {
                **json.loads(body),
                "input": await self._items(name, "input"),
                "output": await self._items(name, "output"),
            }
            for name, body in await self._area.read(query.order_by(*ways).limit(limit))
        ]

    async def inputs(self, response_id: str) -> list[Item]:
        """Return the input of a stored response.

        Raises:
            NotFound: The response does not exist.
        """
        await self.response(response_id)
        return await self._items(response_id, "input")

    async def delete_response(self, response_id: str) -> None:
        """Delete a response.

        Raises:
            NotFound: The response does not exist.
        """

        removed = delete(RESPONSES).where(_RESPONSES.id == response_id, self._mine(RESPONSES))

        def write(table: Connection) -> None:
            if not table.execute(removed).rowcount:
                raise _no_response(response_id)
            table.execute(delete(ITEMS).where(_ITEMS.holder == response_id))

        await self._area.write(write)

    async def context(self, response_id: str) -> list[Item]:
        """Return the items of a response and of all responses that it continues, oldest first.

        Raises:
            NotFound: The response, or one that it continues, does not exist.
        """
        first = select(_RESPONSES.id, _RESPONSES.previous, literal(0).label("depth"))
        first = first.where(_RESPONSES.id == response_id, self._mine(RESPONSES))
        known = first.cte("chain", recursive=True)
        earlier = select(_RESPONSES.id, _RESPONSES.previous, known.c.depth + 1)
        earlier = earlier.join_from(RESPONSES, known, _RESPONSES.id == known.c.previous)
        earlier = earlier.where(self._mine(RESPONSES), known.c.depth < MAX_CHAIN)
        chain = known.union_all(earlier)
        query = select(chain.c.previous, _ITEMS.body)
        query = query.outerjoin_from(chain, ITEMS, _ITEMS.holder == chain.c.id)
        rows = await self._area.read(query.order_by(chain.c.depth.desc(), _ITEMS.place))
        if not rows or rows[0][0] is not None:
            raise _no_response(response_id)
        return [json.loads(body) for _, body in rows if body is not None]

    async def item(self, item_id: str) -> Item:
        """Return an item of a stored response.

        Raises:
            NotFound: The response or the item does not exist.
        """
        query = select(_ITEMS.body).join_from(ITEMS, RESPONSES, _RESPONSES.id == _ITEMS.holder)
        query = query.where(_ITEMS.id == item_id, self._mine(RESPONSES)).limit(1)
        rows = await self._area.read(query)
        if not rows:
            raise NotFound(f"There is no item {item_id!r}.", field="input")
        item: Item = json.loads(rows[0][0])
        return item

    # --- conversations -------------------------------------------------------------------------

    async def create(self, metadata: Mapping[str, str], items: Sequence[Item]) -> Conversation:
        """Create a conversation with items."""
        now = int(self._clock())
        made = Conversation(f"conv_{uuid.uuid4().hex}{uuid.uuid4().hex[:16]}", now, {**metadata})
        row = {
            "id": made.conversation_id,
            "tenant": self._tenant,
            "owner": self._owner,
            "created_at": now,
            "changed_at": now,
            "locked_until": 0.0,
            "metadata": json.dumps(made.metadata),
        }

        def write(table: Connection) -> None:
            table.execute(insert(CONVERSATIONS), row)
            _add(table, made.conversation_id, "input", items)

        await self._area.write(write)
        return made

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation.

        Raises:
            NotFound: The conversation does not exist.
        """
        columns = _CONVERSATIONS.id, _CONVERSATIONS.created_at, _CONVERSATIONS.metadata
        query = select(*columns).where(_CONVERSATIONS.id == conversation_id)
        rows = await self._area.read(query.where(self._mine(CONVERSATIONS)))
        if not rows:
            raise _no_conversation(conversation_id)
        identifier, created_at, metadata = rows[0]
        return Conversation(identifier, created_at, json.loads(metadata))

    async def update(self, conversation_id: str, metadata: Mapping[str, str]) -> Conversation:
        """Replace the metadata of a conversation.

        Raises:
            NotFound: The conversation does not exist.
        """
        text = json.dumps({**metadata})
        await self._area.write(lambda table: self._change(table, conversation_id, metadata=text))
        return await self.get(conversation_id)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation with its items.

        Raises:
            NotFound: The conversation does not exist.
        """

        here = _CONVERSATIONS.id == conversation_id
        removed = delete(CONVERSATIONS).where(here, self._mine(CONVERSATIONS))

        def write(table: Connection) -> None:
            if not table.execute(removed).rowcount:
                raise _no_conversation(conversation_id)
            table.execute(delete(ITEMS).where(_ITEMS.holder == conversation_id))

        await self._area.write(write)

    async def items(self, conversation_id: str) -> list[Item]:
        """Return the items of a conversation, oldest first.

        Raises:
            NotFound: The conversation does not exist.
        """
        await self.get(conversation_id)
        return await self._items(conversation_id, "input")

    async def add(self, conversation_id: str, items: Sequence[Item]) -> None:
        """Add items to a conversation.

        Raises:
            NotFound: The conversation does not exist.
        """

        def write(table: Connection) -> None:
            self._change(table, conversation_id)
            _add(table, conversation_id, "input", items)

        await self._area.write(write)

    async def remove(self, conversation_id: str, item_id: str) -> None:
        """Delete an item of a conversation.

        Raises:
            NotFound: The conversation or the item does not exist.
        """

        here = _ITEMS.holder == conversation_id, _ITEMS.part == "input"
        removed = delete(ITEMS).where(*here, _ITEMS.id == item_id)

        def write(table: Connection) -> None:
            self._change(table, conversation_id)
            if not table.execute(removed).rowcount:
                raise NotFound(f"There is no item {item_id!r}.", field="item_id")

        await self._area.write(write)

    async def lock(self, conversation_id: str, newest: str | None) -> None:
        """Reserve a conversation for one answer, until `unlock` or `save`.

        Args:
            newest: The id of its last item when it was read; None if it had none.

        Raises:
            NotFound: The conversation does not exist.
            Conflict: Another answer is being written, or was added since the items were read.
        """
        await self.get(conversation_id)
        now = self._clock()

        here = _CONVERSATIONS.id == conversation_id, _CONVERSATIONS.locked_until < now
        locked = update(CONVERSATIONS).where(*here).values(locked_until=now + LOCK_SECONDS)
        last = select(_ITEMS.id).where(_ITEMS.holder == conversation_id)
        last = last.order_by(_ITEMS.place.desc()).limit(1)

        def write(table: Connection) -> None:
            is_locked = table.execute(locked).rowcount
            if not is_locked or table.scalar(last) != newest:
                raise Conflict(
                    "Another response is being written in this conversation.",
                    hint="Wait for it to end, and send the request again.",
                    field="conversation",
                )

        await self._area.write(write)

    async def unlock(self, conversation_id: str) -> None:
        """Unlock a conversation; it may have been deleted."""
        freed = update(CONVERSATIONS).where(_CONVERSATIONS.id == conversation_id)
        await self._area.write(lambda table: table.execute(freed.values(locked_until=0.0)))

    # --- inside ------------------------------------------------------------------------------

    async def _items(self, holder: str, part: Part) -> list[Item]:
        query = select(_ITEMS.body).where(_ITEMS.holder == holder, _ITEMS.part == part)
        rows = await self._area.read(query.order_by(_ITEMS.place))
        return [json.loads(row.body) for row in rows]

    def _mine(self, table: Table) -> ColumnElement[bool]:
        """Return the condition for the caller's rows."""
        return (table.c.tenant == self._tenant) & (table.c.owner == self._owner)

    def _change(self, table: Connection, conversation_id: str, **values: Any) -> None:
        """Record a change of a conversation, or raise NotFound."""
        here = _CONVERSATIONS.id == conversation_id, self._mine(CONVERSATIONS)
        values["changed_at"] = int(self._clock())
        if not table.execute(update(CONVERSATIONS).where(*here).values(values)).rowcount:
            raise _no_conversation(conversation_id)


def _add(table: Connection, holder: str, part: Part, items: Iterable[Item]) -> None:
    rows = [
        {"holder": holder, "part": part, "id": item["id"], "body": json.dumps(item)}
        for item in items
    ]
    upsert(table, ITEMS, rows, "body", keys=("holder", "part", "id"))


def _no_response(response_id: str) -> NotFound:
    return NotFound(
        f"Response {response_id!r} not found. Use 'client.responses.list()' to list available"
        " Responses.",
        hint="It was not stored, was deleted, or is older than answers.retention_days.",
        field="response_id",
    )


def _no_conversation(conversation_id: str) -> NotFound:
    return NotFound(f"Conversation {conversation_id!r} not found.", field="conversation_id")
