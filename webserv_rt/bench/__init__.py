"""Benchmarks: what a reset or a launch costs, beside its peers, and whether anything is left behind."""
