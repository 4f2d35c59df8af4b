"""Suffix matches over token texts: the data structures of the ``suffix`` drafter. Pure Python."""
