"""Implementations of the contract, one folder each, and the stack that puts them together.

A provider knows its engine and the contract, never a sibling. `registry.py` finds their specs,
`config.py` reads which of them the operator wants, `stack.py` builds and holds them.
`concurrency.py` has the threads, batches and delays that all of them use.
"""
