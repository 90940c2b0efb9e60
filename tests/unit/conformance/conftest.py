"""LibCST is an extra: the recipe that needs it is tested where it is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("libcst") else ["test_migration.py"]
