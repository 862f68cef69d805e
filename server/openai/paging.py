"""Lists of OpenAI's wire: pages of objects, and cursors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from corral.api.errors import InvalidRequest, NotFound

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_FILES = 10_000
"""Maximum number of files on a page of `/v1/files`; OpenAI's limit."""


class Named(Protocol):
    """An object with an id."""

    id: str


T = TypeVar("T", bound=BaseModel)

Order = Literal["asc", "desc"]


class Page(BaseModel, Generic[T]):
    """A page of objects, and whether more follow."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None = Field(description="First id of the page; null if it is empty.")
    last_id: str | None = Field(description="`after` of the next page.")
    has_more: bool


class Cursor(BaseModel):
    """Selects a page of a list.

    Attributes:
        after: Only objects after this one.
        before: Only objects before this one.
        limit: Maximum number of objects per page.
        order: By creation time; "desc" for newest first.
    """

    after: str | None = None
    before: str | None = None
    limit: int = DEFAULT_LIMIT
    order: Order = "desc"


After = Annotated[str | None, Query(description="`last_id` of the previous page.")]
Before = Annotated[str | None, Query(description="`first_id` of the next page.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of objects per page.")]
FileLimit = Annotated[
    int, Query(ge=1, le=MAX_FILES, description="Maximum number of files per page.")
]
Ordered = Annotated[Order, Query(description="Order by creation time; desc: newest first.")]


async def _cursor(
    after: After = None,
    before: Before = None,
    limit: Limit = DEFAULT_LIMIT,
    order: Ordered = "desc",
) -> Cursor:
    return Cursor(after=after, before=before, limit=limit, order=order)


CursorOf = Annotated[Cursor, Depends(_cursor)]


@contextmanager
def continued() -> Iterator[None]:
    """Turn an unknown `after` or `before` into an invalid request: the list itself exists."""
    try:
        yield
    except NotFound as error:
        if error.field not in {"after", "before"}:
            raise
        hint = "Use first_id or last_id of a page."
        raise InvalidRequest(error.message, hint=hint, field=error.field) from None


def ends(data: Sequence[Named]) -> dict[str, str | None]:
    """Return `first_id` and `last_id` of a page."""
    return {
        "first_id": data[0].id if data else None,
        "last_id": data[-1].id if data else None,
    }


def page_of_items(items: Sequence[Mapping[str, Any]], cursor: Cursor) -> dict[str, Any]:
    """Return a page of the items of a response or of a conversation.

    Args:
        items: All items, oldest first.

    Raises:
        InvalidRequest: No item has the id `after` or `before`.
    """
    ordered = list(items) if cursor.order == "asc" else list(reversed(items))
    places = {each["id"]: place for place, each in enumerate(ordered)}
    for name, given in (("after", cursor.after), ("before", cursor.before)):
        if given is not None and given not in places:
            raise InvalidRequest(f"No item has the id {given[:100]!r}.", field=name)
    start = places[cursor.after] + 1 if cursor.after is not None else 0
    end = places[cursor.before] if cursor.before is not None else len(ordered)
    data = ordered[start:end]
    page = data[: cursor.limit] if cursor.before is None else data[-cursor.limit :]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(data),
    }
