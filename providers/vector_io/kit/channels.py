"""How gRPC opens a connection to an engine's server, and opens it again."""

from __future__ import annotations

_PAUSE_MILLISECONDS = 100  # gRPC's own grow to two minutes, while the server may be back


def channel_options(timeout_seconds: float) -> dict[str, int]:
    """Return the options of a channel whose calls take at most so long.

    What gRPC calls the least back-off is how long an attempt to connect may take, TLS included.
    """
    return {
        "grpc.initial_reconnect_backoff_ms": _PAUSE_MILLISECONDS,
        "grpc.max_reconnect_backoff_ms": _PAUSE_MILLISECONDS,
        "grpc.min_reconnect_backoff_ms": int(timeout_seconds * 1000),
    }
