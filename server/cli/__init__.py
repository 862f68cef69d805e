"""The command line: an HTTP client of the server, run in process where no URL is given."""
