"""What engines share, public for authors of providers.

To rank: `exact` for vectors; `candidates` and `sparse` for engines that only propose; `rows` for
sets of row numbers. To store: `write_ahead`, names, clients, retries, records, tokens and undo.
"""
