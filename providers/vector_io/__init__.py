"""Vector databases: a folder for each engine, and the text analysis and BM25 they share."""
