"""A deadline after which a reading process ends itself, so that no document blocks it.

A watchdog thread of the interpreter ends the process, even during a call that holds the global
interpreter lock. Without a deadline, as in a test that calls a parser directly, nothing happens.
"""

from __future__ import annotations

import faulthandler
import os
import time

_ends: list[float] = []
_nowhere = os.open(os.devnull, os.O_WRONLY)


def start(seconds: float) -> None:
    """End the process after `seconds`, unless `stop` is called before."""
    _ends[:] = [time.monotonic() + seconds]
    faulthandler.dump_traceback_later(seconds, exit=True, file=_nowhere)


def extend(seconds: float) -> None:
    """Give the process more time, if it has a deadline."""
    if _ends:
        start(max(_ends[0] - time.monotonic(), 0) + seconds)


def stop() -> None:
    """Cancel the deadline."""
    _ends.clear()
    faulthandler.cancel_dump_traceback_later()
