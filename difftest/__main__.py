"""``python -m difftest``: the command, where its script is not on the path."""

from difftest.cli.main import main

if __name__ == "__main__":
    main(prog_name="difftest")
