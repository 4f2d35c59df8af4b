"""The drills, one a file: each ends with ``DRILL``."""
