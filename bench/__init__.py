"""Measurements against git and peers. `python -m bench --help` tells how; figures go to bench/RESULTS.md."""
