"""What the providers use of torch, for machines without it."""

from __future__ import annotations

from . import nn as nn


def set_num_threads(threads: int) -> None:
    """Take a number of threads."""
    assert threads >= 1
