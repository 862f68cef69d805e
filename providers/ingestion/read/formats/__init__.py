"""One module for each kind of file: from its bytes to the text of its pages.

Each imports its packages, of the extra `documents`, when the first such file arrives. Whatever a
package raises on a broken file is an InvalidRequest: the file is its sender's to mend.
"""
