"""Access: keys and tokens, roles, rate limits, the audit log."""
