"""The examples of agents and of an app run as they are, against a fake model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..server.harness import InProcess, live_server, run_config

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "What keeps cattle in?"


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return what the fake model says: it searches once, then answers from what it read."""
    read = [each for each in body["messages"] if each["role"] == "tool"]
    if not read:
        offered = {tool["function"]["name"] for tool in body["tools"]}
        assert {"search", "fetch"} <= offered
        arguments = json.dumps({"query": QUESTION})
        function = {"name": "search", "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    said = read[-1]["content"]
    text = said if isinstance(said, str) else "".join(part["text"] for part in said)
    found = json.loads(text)
    found = json.loads(found["text"]) if "results" not in found else found
    best = found["results"][0]
    return {"role": "assistant", "content": f"{best['text']} [{best['title']}]({best['url']})"}


class _Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = reply(body)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {
            "id": "chat_1", "object": "chat.completion", "created": 1, "model": body["model"],
            "choices": [choice], "usage": usage,
        }  # fmt: skip
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def fake_model() -> Iterator[str]:
    """Yield the address of a language model that searches once and cites what it found."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of an agent: Corral with a document, and the model."""
    with InProcess(tmp_path) as app:
        app.register("notes")
        fence = "# Fences\n\nA fence keeps the cattle in."
        app.rag_insert(
            {"document_id": "fence.md", "content": fence, "mime_type": "text/markdown"}, db="notes"
        )
    with live_server(run_config(), tmp_path) as url, fake_model() as model:
        yield {**os.environ, "CORRAL_URL": url, "MODEL_URL": model, "HOME": str(tmp_path)}


def said(python: str, example: str, environment: dict[str, str]) -> str:
    """Run an example with the question; return what it prints."""
    done = subprocess.run(
        [python, str(EXAMPLES / example), QUESTION],
        capture_output=True, text=True, timeout=100, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_loop_answers_and_cites(addresses: dict[str, str]) -> None:
    """The model's call reaches Corral, the answer cites the document's title and address."""
    answer = said(sys.executable, "agent_loop.py", addresses)
    assert "A fence keeps the cattle in." in answer
    assert (
        f"[Fences]({addresses['CORRAL_URL']}/document?vector_db_id=notes&document_id=fence.md"
        in answer
    )


def test_the_agents_sdk_answers_and_cites(addresses: dict[str, str]) -> None:
    """The unmodified SDK lists and calls the tools over MCP."""
    python = Path(sys.prefix) / "frameworks" / "bin" / "python"
    if not python.exists():
        pytest.skip("no frameworks: make .venv/.frameworks installs them")
    answer = said(str(python), "agents_sdk.py", addresses)
    assert "A fence keeps the cattle in." in answer
    assert "[Fences](" in answer


def test_corral_lives_in_an_app(tmp_path: Path) -> None:
    """Notes go in by one route and answer a question on another, in one process."""
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run_config().model_dump(mode="json")))
    program = (
        "import json, sys; from starlette.testclient import TestClient\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "from fastapi_app import app\n"
        "with TestClient(app) as client:\n"
        "    for name, text in (('fence', 'A fence keeps cattle in.'), ('barn', 'Hay is dry.')):\n"
        "        assert client.put(f'/notes/{name}', json={'text': text}).json() == {'chunks': 1}\n"
        "    found = client.get('/answer', params={'question': 'what keeps cattle in?'})\n"
        "    print(json.dumps(found.json()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "CORRAL_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "[1]" in found["context"]
    assert found["notes"][0] == "fence"
