"""A running server as its operator sees it: metrics, traces, logs, readiness."""
