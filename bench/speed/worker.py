"""A process of its own for each system, so that memory, crashes and threads are the system's own.

    worker = Worker(backend, scratch_folder, questions)
    await worker.call("prepare", collection)
    seconds = await worker.call("add", chunks, embeddings)
    worker.stop()

One question at a time goes through a pipe, and nothing else runs in the process meanwhile.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from corral.bench.backends import Backend
from corral.bench.run import OutOfTime, said
from corral.bench.speed.session import Session

CALL_SECONDS = 600.0
"""A system that is at one step for so long hangs, and is ended."""
_PATIENCE_SECONDS = 10.0


class WorkerFailed(Exception):
    """What went wrong in the worker, in words for a report."""


class Worker:
    """A worker process; ended at the latest with the process that made it.

    Args:
        backend: What it measures.
        scratch: Empty folder for the system, removed by the caller.
        questions: As `Session` takes them.
    """

    def __init__(self, backend: Backend, scratch: Path, questions: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        arguments = (other, backend, scratch, questions)
        self._process = context.Process(target=_work, args=arguments, daemon=False)
        self._process.start()
        self._unanswered = 0
        other.close()

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """That of the process; None while it runs, negative where a signal ended it."""
        return self._process.exitcode

    async def call(self, what: str, *arguments: Any, ends: float = float("inf")) -> Any:
        """Return what the session's method returns.

        Args:
            what: Name of a method of `Session`.
            arguments: Its arguments.
            ends: On the clock of `time.monotonic`; the worker is not asked, or killed, after it.

        Raises:
            OutOfTime: The answer did not come until then.
            WorkerFailed: The method failed, the process ended, or it was killed because the answer
                did not come within `CALL_SECONDS`.
        """
        hangs = time.monotonic() + CALL_SECONDS
        if time.monotonic() > ends:
            raise OutOfTime
        try:
            self._pipe.send((what, arguments))
            self._unanswered += 1
            while not await asyncio.to_thread(self._pipe.poll, 0.25):
                if time.monotonic() > min(hangs, ends):
                    self.kill()
                    if hangs > ends:
                        raise OutOfTime
                    raise WorkerFailed(f"No answer within {CALL_SECONDS:g} s.")
            holds, result = self._pipe.recv()
            self._unanswered -= 1
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE_SECONDS)
            raise WorkerFailed(f"Its process ended, code {self.exit_code}.") from error
        if not holds:
            raise WorkerFailed(result)
        return result

    def stop(self) -> None:
        """Close the system and end the process."""
        try:
            self._pipe.send(("close", ()))
            for _ in range(self._unanswered + 1):  # a call may have been interrupted
                if self._pipe.poll(_PATIENCE_SECONDS):
                    self._pipe.recv()
        except (EOFError, OSError):
            pass
        self._pipe.close()
        self._process.join(_PATIENCE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process whatever it does."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(pipe: Connection, backend: Backend, scratch: Path, questions: Any) -> None:
    """Answer questions until the pipe is closed."""
    os.dup2(2, 1)  # what engines print belongs to no report
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this in order
    session: Session | None = None
    with asyncio.Runner() as runner:
        while True:
            try:
                what, arguments = pipe.recv()
            except (EOFError, OSError):  # the parent is gone, or has no more questions
                return
            try:
                if session is None:
                    session = Session(backend.open(scratch), questions)
                answer = (True, runner.run(getattr(session, what)(*arguments)))
            except Exception as error:  # noqa: BLE001 - whatever a system raises is its own row
                answer = (False, said(error))
            try:
                pipe.send(answer)
            except OSError:  # nobody waits for it any more
                return
