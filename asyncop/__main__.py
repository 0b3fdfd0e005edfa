"""`python -m asyncop`: the same as the `asyncop` command."""

from asyncop.cli import main

if __name__ == "__main__":
    main()
