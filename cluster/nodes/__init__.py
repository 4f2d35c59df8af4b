"""A Ray of several nodes on one machine, each with labels, ports and a folder of its own."""
