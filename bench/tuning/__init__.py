"""Choose search mode, fusion and re-ranker on one half of the data, judge on the other half.

`questions` says what is asked and what is right, `legs` searches once, `space` names what is tried,
`tune` chooses and reports.
"""
