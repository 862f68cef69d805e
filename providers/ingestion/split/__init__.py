"""Split the text of documents into chunks, each with its place in the document."""
