"""Language models: prompt in, text out; one folder each."""
