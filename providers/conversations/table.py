"""Stored responses and conversations, in `conversations.db`: JSON objects and their items.

Each belongs to one caller: to the tenant and the API key that made it, or to the tenant and the
user of a token. For every other caller it does not exist.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import apsw

from corral.api.errors import Conflict, NotFound
from corral.api.principal import Principal
from corral.providers.base.database import Database, Schema

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    " owner TEXT NOT NULL, created_at INTEGER NOT NULL, previous TEXT, body TEXT NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS responses_by_age ON responses (created_at)",
    "CREATE TABLE IF NOT EXISTS conversations (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    " owner TEXT NOT NULL, created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL,"
    " locked_until REAL NOT NULL, metadata TEXT NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS conversations_by_age ON conversations (changed_at)",
    "CREATE TABLE IF NOT EXISTS items (place INTEGER PRIMARY KEY AUTOINCREMENT,"
    " holder TEXT NOT NULL, part TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,"
    " UNIQUE (holder, part, id)) STRICT",
    "CREATE INDEX IF NOT EXISTS items_by_id ON items (id)",
)
TABLES = Schema(SCHEMA)
REMEDY = "Move it away: stored responses and conversations are lost, and no chunks."

LOCK_SECONDS = 900.0
"""Time after which a conversation is free again if the process that answers in it was killed."""
MAX_CHAIN = 1000
"""Maximum number of responses that a response can continue, one after the other."""

_CONTEXT = (
    "WITH RECURSIVE chain (id, previous, depth) AS (SELECT id, previous, 0 FROM responses"
    " WHERE id = ? AND tenant = ? AND owner = ? UNION ALL SELECT r.id, r.previous, depth + 1"
    " FROM responses AS r JOIN chain ON r.id = chain.previous WHERE r.tenant = ? AND r.owner = ?"
    " AND depth < ?) SELECT chain.previous, items.body FROM chain LEFT JOIN items"
    " ON items.holder = chain.id ORDER BY chain.depth DESC, items.place"
)

_EXPIRE = (
    "DELETE FROM items WHERE holder IN (SELECT id FROM responses WHERE created_at < ?)",
    "DELETE FROM responses WHERE created_at < ?",
    "DELETE FROM items WHERE holder IN (SELECT id FROM conversations WHERE changed_at < ?)",
    "DELETE FROM conversations WHERE changed_at < ?",
)

Item: TypeAlias = dict[str, Any]
"""An item of a conversation, as OpenAI's Responses have them, with an `id`."""

Part: TypeAlias = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation.

    Attributes:
        created_at: In Unix seconds.
    """

    conversation_id: str
    created_at: int
    metadata: dict[str, str]


class ConversationTable:
    """The file of all callers' responses and conversations; safe for tasks and processes.

    Args:
        home: The data folder.
        clock: Returns the time, in Unix seconds.
    """

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self.file = Database(home / "conversations.db", TABLES, remedy=REMEDY)
        self.clock = clock

    def of(self, principal: Principal) -> Conversations:
        """Return the responses and conversations of a caller."""
        user = f"user:{principal.user}" if principal.user else ""
        owner = f"key:{principal.key_id}" if principal.key_id else user
        return Conversations(self, principal.tenant, owner)

    async def expire(self, seconds: float) -> None:
        """Delete responses that are older, and conversations that have not changed for as long."""
        due = int(self.clock() - seconds)

        def write(file: apsw.Connection) -> None:
            for query in _EXPIRE:
                file.execute(query, (due,))

        oldest = (
            "SELECT min(created_at) FROM responses UNION ALL SELECT min(changed_at)"
            " FROM conversations"
        )
        if any(at is not None and at < due for (at,) in await self.file.read(oldest)):
            await self.file.write(write)

    async def close(self) -> None:
        """Close the file."""
        await self.file.close()


class Conversations:
    """The responses and conversations of one caller.

    Args:
        table: Where they are.
        tenant, owner: The caller.
    """

    def __init__(self, table: ConversationTable, tenant: str, owner: str) -> None:
        self._file, self._clock = table.file, table.clock
        self._caller = (tenant, owner)

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
            response: As it is shown, with its `output`.
            inputs: Its own input, without the items of earlier responses.
            conversation_id: The conversation; it is unlocked.
            is_stored: False to add to the conversation only.

        Raises:
            NotFound: The conversation was deleted.
        """
        body = {name: value for name, value in response.items() if name != "output"}
        output = list(response["output"])
        row = (
            response["id"],
            *self._caller,
            int(response["created_at"]),
            response["previous_response_id"],
            json.dumps(body),
        )

        def write(file: apsw.Connection) -> None:
            if is_stored:
                file.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)", row)
                _add(file, response["id"], "input", inputs)
                _add(file, response["id"], "output", output)
            if conversation_id is not None:
                self._change(file, conversation_id, "locked_until = 0")
                _add(file, conversation_id, "input", [*inputs, *output])

        await self._file.write(write)

    async def response(self, response_id: str) -> dict[str, Any]:
        """Return a stored response, with its output.

        Raises:
            NotFound: There is none.
        """
        query = "SELECT body FROM responses WHERE id = ? AND tenant = ? AND owner = ?"
        rows = await self._file.read(query, response_id, *self._caller)
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
        """Return stored responses by the time they were made, each with its input and output.

        Args:
            after: The response before the first one.
            limit: Maximum number.
            model: Only responses of this model; None for all models.

        Raises:
            NotFound: There is no response `after`.
        """
        place, bindings = "", [*self._caller]
        if model is not None:
            place = " AND json_extract(body, '$.model') = ?"
            bindings.append(model)
        if after is not None:
            query = "SELECT 1 FROM responses WHERE id = ? AND tenant = ? AND owner = ?"
            if not await self._file.read(query, after, *self._caller):
                raise NotFound(f"Response {after!r} not found.", field="after")
            step = "<" if order == "desc" else ">"
            start = "SELECT created_at, rowid FROM responses WHERE id = ?"
            place += f" AND (created_at, rowid) {step} ({start})"
            bindings.append(after)
        query = (
            f"SELECT id, body FROM responses WHERE tenant = ? AND owner = ?{place}"  # noqa: S608 - constants of this method; values are bound
            f" ORDER BY created_at {order}, rowid {order} LIMIT {limit:d}"
        )
        return [
            {
                **json.loads(body),
                "input": await self._items(name, "input"),
                "output": await self._items(name, "output"),
            }
            for name, body in await self._file.read(query, *bindings)
        ]

    async def inputs(self, response_id: str) -> list[Item]:
        """Return the input of a stored response.

        Raises:
            NotFound: There is none.
        """
        await self.response(response_id)
        return await self._items(response_id, "input")

    async def delete_response(self, response_id: str) -> None:
        """Delete a response.

        Raises:
            NotFound: There is none.
        """

        def write(file: apsw.Connection) -> None:
            query = "DELETE FROM responses WHERE id = ? AND tenant = ? AND owner = ?"
            file.execute(query, (response_id, *self._caller))
            if not file.changes():
                raise _no_response(response_id)
            file.execute("DELETE FROM items WHERE holder = ?", (response_id,))

        await self._file.write(write)

    async def context(self, response_id: str) -> list[Item]:
        """Return the items of a response and of all that it continues, the oldest first.

        Raises:
            NotFound: The response, or one that it continues, does not exist.
        """
        bindings = (response_id, *self._caller, *self._caller, MAX_CHAIN)
        rows = await self._file.read(_CONTEXT, *bindings)
        if not rows or rows[0][0] is not None:
            raise _no_response(response_id)
        return [json.loads(body) for _, body in rows if body is not None]

    async def item(self, item_id: str) -> Item:
        """Return an item of a stored response.

        Raises:
            NotFound: There is none.
        """
        query = (
            "SELECT items.body FROM items JOIN responses ON responses.id = items.holder"
            " WHERE items.id = ? AND responses.tenant = ? AND responses.owner = ? LIMIT 1"
        )
        rows = await self._file.read(query, item_id, *self._caller)
        if not rows:
            raise NotFound(f"There is no item {item_id!r}.", field="input")
        item: Item = json.loads(rows[0][0])
        return item

    # --- conversations -------------------------------------------------------------------------

    async def create(self, metadata: Mapping[str, str], items: Sequence[Item]) -> Conversation:
        """Create a conversation with items."""
        now = int(self._clock())
        made = Conversation(f"conv_{uuid.uuid4().hex}{uuid.uuid4().hex[:16]}", now, {**metadata})
        row = (made.conversation_id, *self._caller, now, now, 0.0, json.dumps(made.metadata))

        def write(file: apsw.Connection) -> None:
            file.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            _add(file, made.conversation_id, "input", items)

        await self._file.write(write)
        return made

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation.

        Raises:
            NotFound: There is none.
        """
        query = (
            "SELECT id, created_at, metadata FROM conversations"
            " WHERE id = ? AND tenant = ? AND owner = ?"
        )
        rows = await self._file.read(query, conversation_id, *self._caller)
        if not rows:
            raise _no_conversation(conversation_id)
        identifier, created_at, metadata = rows[0]
        return Conversation(identifier, created_at, json.loads(metadata))

    async def update(self, conversation_id: str, metadata: Mapping[str, str]) -> Conversation:
        """Replace the metadata of a conversation.

        Raises:
            NotFound: There is none.
        """
        text = json.dumps({**metadata})
        await self._file.write(
            lambda file: self._change(file, conversation_id, "metadata = ?", text)
        )
        return await self.get(conversation_id)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation with its items.

        Raises:
            NotFound: There is none.
        """

        def write(file: apsw.Connection) -> None:
            query = "DELETE FROM conversations WHERE id = ? AND tenant = ? AND owner = ?"
            file.execute(query, (conversation_id, *self._caller))
            if not file.changes():
                raise _no_conversation(conversation_id)
            file.execute("DELETE FROM items WHERE holder = ?", (conversation_id,))

        await self._file.write(write)

    async def items(self, conversation_id: str) -> list[Item]:
        """Return the items of a conversation, the oldest first.

        Raises:
            NotFound: There is no such conversation.
        """
        await self.get(conversation_id)
        return await self._items(conversation_id, "input")

    async def add(self, conversation_id: str, items: Sequence[Item]) -> None:
        """Add items to a conversation.

        Raises:
            NotFound: There is no such conversation.
        """

        def write(file: apsw.Connection) -> None:
            self._change(file, conversation_id)
            _add(file, conversation_id, "input", items)

        await self._file.write(write)

    async def remove(self, conversation_id: str, item_id: str) -> None:
        """Delete an item of a conversation.

        Raises:
            NotFound: There is no such conversation or item.
        """

        def write(file: apsw.Connection) -> None:
            self._change(file, conversation_id)
            query = "DELETE FROM items WHERE holder = ? AND part = 'input' AND id = ?"
            file.execute(query, (conversation_id, item_id))
            if not file.changes():
                raise NotFound(f"There is no item {item_id!r}.", field="item_id")

        await self._file.write(write)

    async def lock(self, conversation_id: str, newest: str | None) -> None:
        """Reserve a conversation for one answer, until `unlock` or `save`.

        Args:
            newest: The id of its last item when it was read; None if it had none.

        Raises:
            NotFound: There is no such conversation.
            Conflict: Another answer is being written, or was added since the items were read.
        """
        await self.get(conversation_id)
        now = self._clock()

        def write(file: apsw.Connection) -> None:
            query = "UPDATE conversations SET locked_until = ? WHERE id = ? AND locked_until < ?"
            file.execute(query, (now + LOCK_SECONDS, conversation_id, now))
            locked = bool(file.changes())
            query = "SELECT id FROM items WHERE holder = ? ORDER BY place DESC LIMIT 1"
            rows = file.execute(query, (conversation_id,)).fetchall()
            if not locked or rows != ([] if newest is None else [(newest,)]):
                raise Conflict(
                    "Another response is being written in this conversation.",
                    hint="Wait for it to end, and send the request again.",
                    field="conversation",
                )

        await self._file.write(write)

    async def unlock(self, conversation_id: str) -> None:
        """Free a conversation; it may have been deleted."""
        query = "UPDATE conversations SET locked_until = 0 WHERE id = ?"
        await self._file.write(lambda file: file.execute(query, (conversation_id,)))

    # --- inside ------------------------------------------------------------------------------

    async def _items(self, holder: str, part: Part) -> list[Item]:
        query = "SELECT body FROM items WHERE holder = ? AND part = ? ORDER BY place"
        return [json.loads(body) for (body,) in await self._file.read(query, holder, part)]

    def _change(
        self, file: apsw.Connection, conversation_id: str, change: str = "", *values: Any
    ) -> None:
        """Note a change of a conversation, or raise NotFound."""
        changes = f"changed_at = ?, {change}" if change else "changed_at = ?"
        query = f"UPDATE conversations SET {changes} WHERE id = ? AND tenant = ? AND owner = ?"  # noqa: S608 - callers pass constants; values are bound
        file.execute(query, (int(self._clock()), *values, conversation_id, *self._caller))
        if not file.changes():
            raise _no_conversation(conversation_id)


def _add(file: apsw.Connection, holder: str, part: Part, items: Iterable[Item]) -> None:
    query = (
        "INSERT INTO items (holder, part, id, body) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET body = excluded.body"
    )
    rows = [(holder, part, item["id"], json.dumps(item)) for item in items]
    if rows:
        file.executemany(query, rows)


def _no_response(response_id: str) -> NotFound:
    return NotFound(
        f"Response {response_id!r} not found. Use 'client.responses.list()' to list available"
        " Responses.",
        hint="It was not stored, was deleted, or is older than answers.retention_days.",
        field="response_id",
    )


def _no_conversation(conversation_id: str) -> NotFound:
    return NotFound(f"Conversation {conversation_id!r} not found.", field="conversation_id")
