"""What engines share to rank: text, BM25, exact scores, similar words."""
