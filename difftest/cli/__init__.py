"""The command line, `difftest …`: each command a few lines over the package."""
