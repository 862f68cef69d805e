"""The quality of retrieval: measures, intervals and tests on judged questions."""
