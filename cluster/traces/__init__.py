"""Recorded replies: what every drafter would have proposed at every position, and replaying it."""
