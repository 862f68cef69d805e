"""A second process, for tests that need one; it runs `second_process`.

Starting one takes half a second or more, for the imports of its engine. So the tests of a suite
reuse the process, unless a test killed it; each test opens its index again.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, cast

from corral.api.vector_dbs import VectorDB

SECONDS = 60
"""Maximum time for the steps of a test, in seconds."""


class SecondProcess:
    """A process that opens indexes of one suite and runs steps on them.

    Args:
        suite: The suite's class, in a file that the process loads.
    """

    def __init__(self, suite: type) -> None:
        self._suite = suite
        self._process = subprocess.Popen(  # noqa: S603 - runs this interpreter, not a shell
            [sys.executable, "-m", "corral.api.testing.second_process",
             inspect.getfile(suite), suite.__qualname__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the tests, which end it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        self._is_busy = False

    def serves(self, suite: type) -> bool:
        """Return True if the process can run the next steps of this suite."""
        return suite is self._suite and not self._is_busy and self._process.poll() is None

    def begin(self, vector_db: VectorDB, folder: Path, steps: Any) -> None:
        """Start opening an index and running steps; see `second_process.take`."""
        task = {"vector_db": vector_db.model_dump(mode="json"), "folder": str(folder)}
        self._is_busy = True
        questions = cast("IO[str]", self._process.stdin)
        questions.write(json.dumps({**task, "steps": steps}) + "\n")
        questions.flush()

    def said(self) -> Any:
        """Wait for the next result and return it.

        Raises:
            AssertionError: The process ended instead.
        """
        [reply] = self._line() or [None]
        return reply

    def rest(self) -> list[Any]:
        """Wait for all steps to end, and return their remaining results.

        Raises:
            AssertionError: The process ended, or was stopped after the time limit.
        """
        late = threading.Timer(SECONDS, self._process.kill)
        late.start()
        try:
            return [line[0] for line in iter(self._line, [])]
        finally:
            late.cancel()

    def kill(self) -> list[Any]:
        """Kill the process, even while it runs steps, and return its remaining results."""
        answers = cast("IO[str]", self._process.stdout)
        if answers.closed:
            return []
        self._process.kill()
        with self._process:
            whole = [line for line in answers if line.endswith("\n")]
        return [reply for line in whole for reply in json.loads(line)]

    def stop_work(self) -> None:
        """Kill the process if it is running steps."""
        if self._is_busy:
            self.kill()

    def _line(self) -> list[Any]:
        """Return a list with the next result; empty after all steps."""
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            raise AssertionError(f"the second process ended with {self._process.wait()}")
        replies: list[Any] = json.loads(line)
        self._is_busy = bool(replies)
        return replies


class _Latest:
    """The process of the suite that runs: a pytest run has at most one."""

    process: SecondProcess | None = None


def second_process(suite: type) -> SecondProcess:
    """Return the suite's idle process, or end the previous suite's and start a new one."""
    if _Latest.process is None or not _Latest.process.serves(suite):
        end()
        _Latest.process = SecondProcess(suite)
    return _Latest.process


@atexit.register
def end() -> None:
    """End the process of the latest suite."""
    if _Latest.process is not None:
        _Latest.process.kill()
    _Latest.process = None
