"""The roof: the configured providers, the registered vector DBs, and the way to their indexes."""
