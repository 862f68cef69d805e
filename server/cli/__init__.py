"""The command line: an HTTP client of the server, which runs in process if no URL is given."""
