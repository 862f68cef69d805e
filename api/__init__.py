"""The contract of Corral: types, abstract classes, score and filter semantics, errors.

Nothing here does I/O or knows an engine; every other package may import this one and it imports
none of them. A provider author needs only this package.
"""
