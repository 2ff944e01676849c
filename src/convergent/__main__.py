"""``python -m convergent``: the same as the command ``convergent``."""

from convergent.cli import main

if __name__ == "__main__":
    main()
