"""Learners, one a file; the file name is the name of the learner."""
