"""Text analysis: tokens, words, terms, stop words, and BM25's weights of terms."""
