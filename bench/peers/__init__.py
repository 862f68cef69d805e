"""Foreign systems to measure beside Corral's backends: one small file each, found by name.

`bench/peers/some_name.py` holds `PEER`, a class that extends `corral.bench.system.System`, and is
then measured by `--backends some-name` or, if it is a service, `--backends
some-name=http://127.0.0.1:8321`. Importing the file imports no foreign package: `prepare` does, and
`requires` names the needed distributions.
"""
