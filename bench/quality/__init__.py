"""How good is retrieval: measures, intervals and tests on judged questions."""
