"""Ray Serve warns about itself while it is imported; that is no fault of a test."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401  # only to have it imported
