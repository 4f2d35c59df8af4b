"""Models: where language models come from, and how one runs with a paged cache."""
