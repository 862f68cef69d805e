"""One module per file format; each converts bytes to the text of pages.

A module imports the packages that it needs, from the extra `documents`, with the first such file.
Any exception of a package on a broken file becomes an InvalidRequest, since the sender must fix the
file.
"""
