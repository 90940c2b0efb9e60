"""Its folder is where tests import from."""
