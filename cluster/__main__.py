"""``python -m cluster``: the command line, from a source checkout."""

from cluster.cli.app import main

if __name__ == "__main__":
    main()
