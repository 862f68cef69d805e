"""Durable jobs: their table, the queue, and the processes that run them."""
