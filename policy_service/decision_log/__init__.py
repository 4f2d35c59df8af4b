"""Rounds as records: in memory for ``explain``, in rotating files for ``replay``."""
