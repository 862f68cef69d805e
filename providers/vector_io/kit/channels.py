"""gRPC options for connecting to an engine's server and reconnecting."""

from __future__ import annotations

_PAUSE_MILLISECONDS = 100  # gRPC's default pauses grow to two minutes


def channel_options(timeout_seconds: float) -> dict[str, int]:
    """Return channel options for calls with this timeout.

    In gRPC, the minimum reconnect backoff is also the time limit of one attempt to connect,
    including TLS.
    """
    return {
        "grpc.initial_reconnect_backoff_ms": _PAUSE_MILLISECONDS,
        "grpc.max_reconnect_backoff_ms": _PAUSE_MILLISECONDS,
        "grpc.min_reconnect_backoff_ms": int(timeout_seconds * 1000),
    }
