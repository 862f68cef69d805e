"""The stack: configured providers, registered vector DBs, and access to their indexes."""
