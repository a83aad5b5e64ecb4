"""Benches of the harness itself, each against a peer in the same run: python -m tests.perf."""
