"""Language models: a prompt in, a text out; one folder each."""
