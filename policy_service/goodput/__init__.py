"""The parts of the learner ``goodput``: pure functions on counts, and what one Verifier keeps."""
