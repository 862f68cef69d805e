"""Choose search mode, fusion and re-ranker on one half of the data, judge on the other half.

`questions` has questions with relevant chunks, `legs` searches once, `space` lists the trials,
`tune` chooses and reports.
"""
