"""What engines share to rank, and the public kit of provider authors.

text, words, stop_words, fields and bm25 for words; exact for vectors; candidates and sparse for
engines that only propose; similar for misspelled words; rows for sets of row numbers.
"""
