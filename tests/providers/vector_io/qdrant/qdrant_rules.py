"""What a Qdrant server refuses and the client's local mode accepts, with the version that does so.

Read in the sources of the releases 1.12.0 to 1.19.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]
Schema = dict[str, Body]

CLOUD: Body = {
    "enabled": True,
    "unindexed_filtering_retrieve": False,
    "unindexed_filtering_update": False,
    "max_payload_index_count": 100,
}
"""Strict mode as Qdrant Cloud sets it for new collections."""

_LIMITED = {"POST /points/query", "POST /points/scroll", "POST /facet"}
_FILTERED = {*_LIMITED, "POST /points/count"}


class Refused(Exception):
    """The server answers with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def check(version: str, strict: Body, indexes: Schema, route: str, body: Body) -> None:
    """Raise what the server would answer to a request that it refuses."""
    if route == "POST /facet" and body["key"] not in indexes:  # 1.12
        raise Refused(400, f"Wrong input: Index required for faceting on {body['key']}")
    number = tuple(map(int, version.split(".")))
    if strict.get("enabled") and number >= (1, 13):
        for text in _strict(strict, indexes, route, body):
            # 1.13.0 to 1.14.0 forbid what later ones call a bad request.
            forbidden = number <= (1, 14, 0)
            words = "Forbidden" if forbidden else "Bad request"
            raise Refused(403 if forbidden else 400, f"{words}: {text}")


def _strict(strict: Body, indexes: Schema, route: str, body: Body) -> Iterator[str]:
    limit, most = body.get("limit"), strict.get("max_query_limit")
    if route in _LIMITED and limit and most and limit > most:  # 1.13
        yield f'Limit exceeded {limit} > {most} for "limit". Help: Reduce the "limit" parameter.'
    if route in _FILTERED and strict.get("unindexed_filtering_retrieve") is False:  # 1.13
        for key, kinds in _needs(body.get("filter") or {}):
            if indexes.get(key, {}).get("type") not in kinds:
                yield (
                    f'Index required but not found for "{key}" of one of the following types: '
                    f"[{', '.join(kinds)}]. Help: Create an index for this key."
                )
    exact = body.get("exact") or (body.get("params") or {}).get("exact")
    if exact and strict.get("search_allow_exact") is False:  # 1.13
        yield "Exact search disabled!. Help: Set exact=false."
    points, most = body.get("points"), strict.get("upsert_max_batchsize")
    if route == "PUT /points" and points and most and len(points) > most:  # 1.13
        yield f'Limit exceeded {len(points)} > {most} for "upsert limit". Help: Reduce it.'
    most = strict.get("max_payload_index_count")
    if route == "PUT /index" and most is not None and len(indexes) >= most:  # 1.15; any index
        yield (
            f"Collection already has the maximum number of payload indices ({most}). "
            "Help: Please delete an existing index before creating a new one."
        )


def _needs(filter_: Body) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the fields of a filter with the types of index that serve them."""
    for part in ("must", "should", "must_not"):
        for one in filter_.get(part) or []:
            if "key" not in one:
                yield from _needs(one)
            elif one.get("range"):
                yield one["key"], ("integer", "float")
            else:
                match = one["match"]  # an empty list is one of strings
                values = [match["value"]] if match.get("value") is not None else match["any"]
                is_number = bool(values) and not isinstance(values[0], str)
                yield one["key"], ("integer",) if is_number else ("keyword",)
