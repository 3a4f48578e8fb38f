"""Speed as ratios: what fedaudit does against the naive or the peer's way, in one process, in turn.

`python -m benchmarks NAME` runs one, `all` runs all. A benchmark is one file here with `run() -> dict`.
"""
