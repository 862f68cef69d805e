"""Large bodies: read in pieces with the same outcome, and without stopping the event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.api.checks import check_matrix
from corral.server.bodies import MAX_OBJECTS, PIECE_BYTES, cut
from corral.server.llama_stack.wire import InsertChunksRequest

from .harness import JSON, InProcess, Json, run_config

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=3)


@given(
    st.lists(OBJECTS, min_size=1, max_size=5), st.text(), st.sampled_from([None, 2]), st.booleans()
)
def test_pieces_hold_what_the_whole_holds(
    items: list[Json], text: str, indent: int | None, ascii_only: bool
) -> None:
    """Whatever strings hold, quotes and brackets included: each object once, and in its order.

    If this fails: a chunk is lost, or belongs to a body that it was not in.
    """
    whole = {"a": text, "list": items, "z": {"b": 1}}
    try:
        raw = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return  # a lone surrogate
    found = cut(raw)
    assert found is not None
    assert found.name == "list"
    assert json.loads(found.rest) == {**whole, "list": []}
    joined: list[Json] = []
    for first, body in found.bodies(raw):
        assert first == len(joined)
        joined += json.loads(body)["list"]
    assert joined == items


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"{}", b"[{}]", b'"x"', b'{"list": []}', b'{"list": [1]}', b'{"list": [{}, 1]}',
        b'{"list": [[]]}', b'{"list": [{} {}]}', b'{"list": [{},, {}]}', b'{"list": [{},]}',
        b'{"list": ["{", {}]}', b'{"a": [{}], "b": [{}]}', b'{"list": [{}',
        b'{"list": {}}', b'{"a": {"list": [{}]}}', b"]}]}{{[",
    ],
)  # fmt: skip
def test_other_bodies_are_not_cut(raw: bytes) -> None:
    """What is not one list of objects is left for the whole reading to judge."""
    assert cut(raw) is None


def test_a_list_of_too_many_objects_is_not_cut() -> None:
    """Cutting costs memory for each object, so there is a bound."""
    for number, is_cut in ((MAX_OBJECTS, True), (MAX_OBJECTS + 1, False)):
        raw = b'{"list": [' + b",".join([b"{}"] * number) + b"]}"
        assert (cut(raw) is not None) is is_cut


def test_a_string_without_end_is_read_once() -> None:
    """The time to cut a broken body grows with its length, not with the square of it.

    If this fails: one request of 256 KB holds the interpreter, and so the server, for minutes.
    """
    began = time.process_time()
    assert cut(b'{"list": [{"a": "' + b'\\"' * 60_000) is None
    assert time.process_time() - began < 5


def large(item: str) -> str:
    """Return a JSON object that fills a piece of a body: white space follows its bracket."""
    return "{" + " " * PIECE_BYTES + item[1:]


BODIES: list[tuple[str, Any]] = [
    ("good", [{"content": "a", "chunk_id": "1"}, {"content": "b", "chunk_id": "2"}]),
    ("empty", [{"content": "a"}, {"content": ""}]),
    ("missing", [{"content": "a"}, {"content": "b"}, {"metadata": {}}]),
    ("unknown", [{"content": "a"}, {"content": "b", "contnet": "c"}]),
    ("type", [{"content": "a"}, {"content": "b"}, {"content": "c", "embedding": [1, "x"]}]),
    ("deep", [{"content": "a"}, {"content": "b", "chunk_metadata": {"page": 0}}]),
]


@pytest.mark.parametrize("items", [b for _, b in BODIES], ids=[n for n, _ in BODIES])
def test_a_body_in_pieces_is_answered_as_the_whole(tmp_path: Path, items: list[Json]) -> None:
    """Stored or refused alike, with the numbers of the items as they are in the request.

    If this fails: a large insert is refused for another reason than a small one, or not at all.
    """
    answers = []
    for pieces in (False, True):
        with InProcess(tmp_path / str(pieces)) as app:
            app.register()
            listed = ", ".join(
                large(json.dumps(item)) if pieces else json.dumps(item) for item in items
            )
            raw = f'{{"vector_db_id": "db", "chunks": [{listed}]}}'
            sent = app.send("POST", "/v1/vector-io/insert", content=raw, headers=JSON)
            found = app.contents("a b c", max_chunks=9)
            said = sent.json()
            if sent.is_error:
                del said["request_id"]  # the only thing that differs
            answers.append((sent.status_code, said, sorted(found)))
    assert answers[0] == answers[1]


def test_a_piece_that_is_no_json_is_refused(app: InProcess) -> None:
    """The refusal names no place, as that would be one in the piece."""
    app.register()
    listed = ", ".join(map(large, ('{"content": "a"}', '{"content": nul}')))
    raw = f'{{"vector_db_id": "db", "chunks": [{listed}]}}'
    refused = app.send("POST", "/v1/vector-io/insert", content=raw, headers=JSON)
    assert refused.status_code == 400
    assert "not valid JSON" in refused.text
    assert "behind item 1" in refused.text
    assert "column" not in refused.text
    assert app.contents("a") == []


# --- the event loop ----------------------------------------------------------------------------

DIMENSION = 1536


async def longest_stop(work: Any) -> float:
    """Return the most seconds of this process's own work between two turns of the loop.

    Processor time, since on a busy machine other processes take the clock's.
    """
    done = asyncio.ensure_future(work)
    longest, last = 0.0, time.process_time()
    while not done.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, (now := time.process_time()) - last), now
    await done
    return longest


def test_a_large_insert_does_not_stop_the_loop(tmp_path: Path) -> None:
    """Requests of others have their turn while 24 MiB of embeddings are read, checked and stored.

    Compared with reading the same body by one call in a thread, which holds the interpreter.
    If this fails: one large insert makes every query of everyone wait for it.
    """
    random = np.random.default_rng(5)
    chunks = [
        {"content": f"fox {n}", "embedding": random.normal(size=DIMENSION).tolist()}
        for n in range(800)
    ]
    raw = json.dumps({"vector_db_id": "db", "chunks": chunks}).encode()
    del chunks
    with InProcess(tmp_path, run_config(dimension=DIMENSION)) as app:
        app.register()
        gc.freeze()

        async def measure() -> tuple[float, float]:
            url = "/v1/vector-io/insert"
            at_once = asyncio.to_thread(InsertChunksRequest.model_validate_json, raw)
            control = await longest_stop(at_once)
            return control, await longest_stop(app.http.post(url, content=raw, headers=JSON))

        try:
            measured = [app.run(measure) for _ in range(3)]
        finally:
            gc.unfreeze()
        control = max(before for before, _ in measured)
        assert min(stopped for _, stopped in measured) < control / 2, measured
        assert app.ok("GET", "/v1/vector-dbs/db?counts=true")["chunk_count"] == 800


def test_embeddings_are_checked_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of them are not checked on the thread of the event loop."""
    threads: list[bool] = []
    check = check_matrix

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return check(*given)

    monkeypatch.setattr("corral.api.engine_index.check_matrix", noted)
    with InProcess(tmp_path, run_config(dimension=DIMENSION)) as app:
        app.register()
        app.insert(*[{"content": f"fox {n}", "embedding": [1.0] * DIMENSION} for n in range(40)])
    assert threads == [False]
