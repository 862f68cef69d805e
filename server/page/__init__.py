"""Pages for people: what this server is, and its documentation."""
