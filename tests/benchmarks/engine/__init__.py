"""The engine against its baselines, in one run: ``python -m tests.benchmarks.engine``."""
