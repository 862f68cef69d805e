"""Which search mode, fusion and re-ranker for one's own data: chosen on a half, judged on a half.

`questions` says what is asked and what is right, `legs` searches once, `space` names what is tried,
`tune` chooses and reports.
"""
