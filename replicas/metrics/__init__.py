"""Prometheus series: what there is, how it is measured, and how it is read."""
