"""When a reading process ends itself: no document, and no page of one, takes it longer.

A thread of the interpreter's own ends the process, also in the middle of a call that holds the
interpreter's lock. Where none is set, as in a test that parses by itself, nothing happens.
"""

from __future__ import annotations

import faulthandler
import os
import time

_ends: list[float] = []
_nowhere = os.open(os.devnull, os.O_WRONLY)


def start(seconds: float) -> None:
    """End the process after some time, unless `stop` is called before."""
    _ends[:] = [time.monotonic() + seconds]
    faulthandler.dump_traceback_later(seconds, exit=True, file=_nowhere)


def extend(seconds: float) -> None:
    """Give the process more time, if it has a deadline."""
    if _ends:
        start(max(_ends[0] - time.monotonic(), 0) + seconds)


def stop() -> None:
    """Let the process live."""
    _ends.clear()
    faulthandler.cancel_dump_traceback_later()
