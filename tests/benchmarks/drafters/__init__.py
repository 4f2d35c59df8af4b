"""Every drafting method on every workload: ``python -m tests.benchmarks.drafters``."""
