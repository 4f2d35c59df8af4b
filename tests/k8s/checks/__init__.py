"""Checks of rendered manifests. Each takes objects and returns what is wrong, one line each."""
