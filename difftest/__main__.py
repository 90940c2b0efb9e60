"""``python -m difftest``: the command line, for a script that is not on the path."""

from difftest.cli.main import main

if __name__ == "__main__":
    main(prog_name="difftest")
