"""The audit log: one JSON line for each decision, without any text of a user.

    {"time": "2026-11-22T10:00:00.123Z", "request_id": "...", "tenant": "acme", "user": "ann",
     "key_id": "0123456789ab", "role": "reader", "action": "POST /v1/vector-io/query",
     "vector_dbs": ["notes"], "queries": ["9f86d081884c7d65"], "returned": {"notes": ["chunk-1"]},
     "status": 200, "refused": false}

A question appears as a keyed hash. Equal questions have equal hashes; guesses can be tested only
with the key, the file `query.key` beside the log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.api.principal import Principal
from corral.api.recording import record
from corral.providers.base.server_config import AuditSettings

MIB = 1024 * 1024
KEY_NAME = "query.key"
MAX_IDS = 1000
"""Maximum ids in a line; a longer list ends with the number of omitted ids."""

_LOG = logging.getLogger("corral.server")


@dataclass(slots=True)
class Entry:
    """The facts about one request, collected for its line; also the `Record` of its queries."""

    action: str = ""
    request_id: str = ""
    principal: Principal | None = None
    vector_dbs: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    returned: dict[str, list[str]] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    refused: bool = False

    def calls(self, tool: str) -> None:
        """Add a tool that a request calls."""
        self.tools.append(tool)

    def names(self, *vector_db_ids: str) -> None:
        """Add vector DBs of the request."""
        self.vector_dbs += [name for name in vector_db_ids if name not in self.vector_dbs]

    def asks(self, question: str, vector_db_ids: Sequence[str] = ()) -> None:
        """Add a question and the searched vector DBs."""
        self.names(*vector_db_ids)
        self.questions.append(question)

    def returns(self, vector_db_id: str, chunk_ids: Iterable[str]) -> None:
        """Add the chunks in the reply."""
        self.returned.setdefault(vector_db_id, []).extend(chunk_ids)


def current() -> Entry:
    """Return the current request's entry; outside of a request, an entry that is never written."""
    entry = record.get()
    return entry if isinstance(entry, Entry) else Entry()


def begin(entry: Entry) -> None:
    """Set the current request's entry."""
    record.set(entry)


class AuditLog:
    """Writes lines to files in a folder.

    Each process has its own file, and starts a new one when it is full. A file's name begins with
    the time of its first line, so names sort by time. The oldest files beyond `max_files` are
    deleted.

    Args:
        settings: `server.audit`.
        home: The data folder.
        clock: Returns the time, in UTC.
    """

    def __init__(
        self,
        settings: AuditSettings,
        home: Path,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.folder = Path(settings.folder) if settings.folder else home / "audit"
        self._settings, self._clock = settings, clock
        self._file: int | None = None
        self._size = 0
        self._key: bytes | None = None

    def write(self, entry: Entry, status: int) -> None:
        """Write the line of a decision; log a failure, because the reply has already started.

        Args:
            entry: The facts about the request.
            status: HTTP status of the reply.
        """
        if not self._settings.enabled:
            return
        try:
            self._append(json.dumps(self._line(entry, status), ensure_ascii=True) + "\n")
        except OSError as error:
            _LOG.error("The audit log cannot be written: %s", error.strerror)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # --- inside ------------------------------------------------------------------------------

    def _line(self, entry: Entry, status: int) -> dict[str, Any]:
        who = entry.principal
        return {
            "time": self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request_id": entry.request_id,
            "tenant": who.tenant if who else None,
            "user": who.user if who else None,
            "key_id": who.key_id if who else None,
            "role": who.role.value if who else None,
            "action": " ".join([entry.action, *entry.tools]),
            "vector_dbs": entry.vector_dbs,
            "queries": [self._hashed(question) for question in entry.questions],
            "returned": {name: _shortened(ids) for name, ids in entry.returned.items()},
            "status": status,
            "refused": entry.refused or 400 <= status < 500,
        }

    def _hashed(self, question: str) -> str:
        text = question.encode("utf-8", "surrogatepass")
        return hmac.new(self._query_key(), text, hashlib.sha256).hexdigest()[:16]

    def _query_key(self) -> bytes:
        """Return the key of the hashes, made once for all processes of the data folder."""
        path = self.folder / KEY_NAME
        if self._key is None and not path.exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = path.with_suffix(f".{os.getpid()}")
            made.touch(mode=0o600)
            made.write_bytes(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was faster
                os.link(made, path)
            made.unlink()
        self._key = self._key or path.read_bytes()
        return self._key

    def _append(self, line: str) -> None:
        data = line.encode("ascii")
        full = self._size + len(data) > self._settings.max_mib * MIB
        file = self._file
        if file is None or full or os.fstat(file).st_nlink == 0:
            file = self._begin_file()
        os.write(file, data)
        self._size += len(data)

    def _begin_file(self) -> int:
        """Open a new file, delete the oldest ones beyond `max_files`, and return its descriptor."""
        self.close()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{self._clock():%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = self._file = os.open(self.folder / name, flags, 0o600)
        self._size = 0
        for old in sorted(self.folder.glob("*.jsonl"))[: -self._settings.max_files]:
            with suppress(OSError):  # another process has deleted it, or Windows has it open
                old.unlink()
        return file


def _shortened(ids: list[str]) -> list[str]:
    more = len(ids) - MAX_IDS
    return ids if more <= 0 else [*ids[:MAX_IDS], f"... and {more} more"]
