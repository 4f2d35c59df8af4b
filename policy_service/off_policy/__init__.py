"""What another learner would have earned on a decision log."""
