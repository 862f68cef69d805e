"""A process of its own for each system, so that memory, crashes and threads are the system's own.

    worker = Worker(Entrant(backend), material_folder, scratch_folder)
    await worker.call("prepare")
    seconds = await worker.call("add", 0, 1000)
    worker.stop()

One question at a time goes through a pipe, and nothing else runs in the process meanwhile.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from corral.bench.backends import Backend
from corral.bench.data.corpus import StoredCorpus
from corral.bench.run import OutOfTime, said
from corral.bench.speed.over_http import BareIndex, Served
from corral.bench.speed.session import Session
from corral.bench.system import System

HTTP, INDEX = "http", "index"
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """What is measured: a backend, by the way that everybody takes or by another one.

    Attributes:
        variant: "" for `System` as it is, `http` for a server around it, `index` for the bare
            index without the code around it.
    """

    backend: Backend
    variant: str = ""

    @property
    def label(self) -> str:
        """Unique in a run."""
        return f"{self.backend.name} {self.variant}".strip()

    def open(self, folder: Path) -> System:
        """Return the system, not yet prepared.

        Raises:
            MissingDependency: A package of a foreign system is not installed.
        """
        entry = self.backend.entry
        if entry is not None and self.variant:
            kind = {HTTP: Served, INDEX: BareIndex}[self.variant]
            return kind(self.backend.name, entry, folder)
        return self.backend.open(folder)


class WorkerFailed(Exception):
    """What went wrong in the worker, in words for a report."""


class Worker:
    """A worker process; ended at the latest with the process that made it.

    Args:
        entrant: What it measures.
        corpus: Folder as `write_corpus` left it.
        scratch: Empty folder for the system, removed by the caller.
    """

    def __init__(self, entrant: Entrant, corpus: Path, scratch: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        arguments = (other, entrant, corpus, scratch)
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
            ends: On the clock of `time.monotonic`; when it is past, the worker is killed.

        Raises:
            WorkerFailed: The method failed, or the process ended.
            OutOfTime: The answer did not come in time.
        """
        try:
            self._pipe.send((what, arguments))
            self._unanswered += 1
            while not await asyncio.to_thread(self._pipe.poll, 0.25):
                if time.monotonic() > ends:
                    self.kill()
                    raise OutOfTime
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


def _work(pipe: Connection, entrant: Entrant, corpus: Path, scratch: Path) -> None:
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
                    session = Session(entrant.open(scratch), StoredCorpus(corpus))
                answer = (True, runner.run(getattr(session, what)(*arguments)))
            except Exception as error:  # noqa: BLE001 - whatever a system raises is its own row
                answer = (False, said(error))
            try:
                pipe.send(answer)
            except OSError:  # nobody waits for it any more
                return
