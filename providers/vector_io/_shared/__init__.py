"""What engines share to store: names, clients, retries, records, tokens, undo, threads."""
