"""Telemetry for the operator: metrics, traces, logs, readiness."""
