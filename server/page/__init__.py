"""Pages for people: what this server is, its documentation, and the benchmark's reports."""
