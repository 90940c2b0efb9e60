"""The command line, `difftest …`: each command is a few lines over the package."""
