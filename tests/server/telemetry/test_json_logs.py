"""Logs as JSON, and one id in answer, log and error."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import httpx
import pytest

from corral.server.serving import log_config
from corral.server.telemetry.logs import JsonFormatter

from ..harness import InProcess, ServerProcess, run_config


def test_a_server_logs_json(tmp_path: Path) -> None:
    """Every line is an object; the line of a request has its id, route, status and time."""
    config = run_config()
    config.server.log_format = "json"
    server = ServerProcess(tmp_path, config)
    answer = httpx.get(f"{server.url}/v1/vector-dbs/nothing", headers={"x-request-id": "abc-1"})
    lines = [json.loads(line) for line in server.stop().splitlines()]
    assert answer.json()["request_id"] == "abc-1"
    [line] = [line for line in lines if line["logger"] == "corral.access"]
    assert line["request_id"] == "abc-1"
    assert line["route"] == "/v1/vector-dbs/{vector_db_id}"
    assert (line["status"], line["method"]) == (400, "GET")
    assert line["milliseconds"] > 0


def test_a_line_break_in_a_message_stays_in_its_line() -> None:
    """One record is one line, whatever its message holds."""
    record = logging.LogRecord("a", logging.INFO, "", 0, "one\ntwo", None, None)
    assert json.loads(JsonFormatter().format(record))["message"] == "one\ntwo"
    assert "\n" not in JsonFormatter().format(record)


def test_a_librarys_line_is_json_too() -> None:
    """What a library logs goes through the root logger, which has the same form."""
    config = log_config("json")
    assert config["root"]["handlers"] == ["default"]
    assert "JsonFormatter" in str(config["formatters"]["default"])


def test_plain_lines_are_the_default() -> None:
    """Nothing changes for those who asked for nothing."""
    assert "()" in log_config("text")["formatters"]["default"]
    assert "JsonFormatter" not in str(log_config("text"))


def test_an_error_carries_the_id_of_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Header, body and log line of a refusal hold one id, ours where the client sent none."""
    with InProcess(tmp_path) as app, caplog.at_level(logging.INFO, "corral.access"):
        refused = app.send("GET", "/v1/nothing")
    made = refused.headers["x-request-id"]
    assert refused.json()["request_id"] == made
    assert made in caplog.text
