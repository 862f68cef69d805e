"""Pages for browsers: the console, documents, the API's documentation, and reports."""
