"""From a file or an address to chunks: fetch, parse, split."""
