"""Load tests: a scenario, the requests drawn from it, what came back, and a report of it."""
