"""The client: what it says of errors, and what it does beyond one request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from corral_client import CorralClient, CorralError


def test_more_chunks_than_one_request_holds(client: CorralClient, vector_db_id: str) -> None:
    """Insert, get, list and delete go in several requests and lose nothing."""
    client.register(vector_db_id)
    chunks = [{"chunk_id": f"{n:04d}", "content": f"sheep number {n}"} for n in range(1100)]
    client.insert(vector_db_id, chunks)
    names = [chunk["chunk_id"] for chunk in chunks]
    assert [each.chunk_id for each in client.all(vector_db_id)] == names
    assert [each.chunk_id for each in client.get(vector_db_id, names)] == names
    assert client.delete(vector_db_id, names) == 1100
    client.unregister(vector_db_id)
    assert not client.is_registered(vector_db_id)


def test_a_context_is_asked_for(client: CorralClient, vector_db_id: str) -> None:
    """`ask` returns what the RAG tool says."""
    client.register(vector_db_id)
    client.insert(vector_db_id, [{"content": "A fence keeps the cattle in.", "chunk_id": "1"}])
    found = client.ask("what keeps cattle in?", vector_db_id, citations=True)
    assert found["metadata"]["citations"][0]["marker"] == "[1]"


def test_errors_say_what_corral_says(client: CorralClient) -> None:
    """A refusal is an exception with Corral's message and its status."""
    with pytest.raises(CorralError, match="nobody") as raised:
        client.query("nobody", "anything")
    assert raised.value.status == 400


def test_no_server_is_an_error_too() -> None:
    """The message names the address; both kinds of Corral at once are refused."""
    with (
        CorralClient("http://127.0.0.1:9") as gone,
        pytest.raises(CorralError, match=r"127\.0\.0\.1:9"),
    ):
        gone.query("notes", "anything")
    with pytest.raises(ValueError, match="one of them"):
        CorralClient("http://127.0.0.1:9", home="x")


def test_a_script_that_fails_ends(tmp_path: Path) -> None:
    """An exception while a client in process is open ends the interpreter.

    If this fails: a thread that nobody stops keeps a script or a notebook's kernel alive.
    """
    script = (
        "import sys\n"
        "from corral_client import CorralClient\n"
        "CorralClient(home=sys.argv[1]).is_registered('farm')\n"
        "raise LookupError('of the user')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    ended = subprocess.run(  # noqa: S603 - no shell, and this interpreter
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 1
    assert "of the user" in ended.stderr
