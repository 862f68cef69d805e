"""Logs: plain lines or JSON, each with the id of its request."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from corral.server.request import request_id

FIELDS = ("method", "route", "status", "milliseconds")
"""The `extra` attributes of a line of the access log."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, request_id, and extra attributes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current_id := request_id.get():
            line["request_id"] = current_id
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None))}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
