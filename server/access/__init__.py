"""Who may ask what: keys and tokens, roles, rate limits, the audit log."""
