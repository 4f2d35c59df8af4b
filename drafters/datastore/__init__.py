"""A datastore: token ids of a corpus and the order of their suffixes, in one memory-mapped file."""
