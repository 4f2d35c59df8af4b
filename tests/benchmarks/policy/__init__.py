"""Learners and rules on recorded replies: ``python -m tests.benchmarks.policy``."""
