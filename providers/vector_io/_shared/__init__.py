"""What engines share to store: threads, names, clients, undo."""
