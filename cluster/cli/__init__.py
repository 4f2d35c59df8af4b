"""The command line ``banditserve``: one file for each command."""
