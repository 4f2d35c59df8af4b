"""The engine of a Verifier: one ragged target forward a step, exact sampling, paged cache."""
