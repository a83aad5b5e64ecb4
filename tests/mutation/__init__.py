"""Mutation run over the validators: python -m tests.mutation [MODULE…]; not part of `make test`."""
