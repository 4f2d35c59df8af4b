"""Drafting methods, one a file; the file name is the method name."""
