"""Benchmarks that ship with minivt. Not imported by anything else."""
