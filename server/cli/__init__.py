"""The command line: an HTTP client of the server, run in process if no URL is given."""
