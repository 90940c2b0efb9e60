"""LibCST is an extra: what rewrites is tested where it is installed, as every tox environment has
it; that the command says what to install is tested everywhere (tests/unit/cli/test_migrate.py)."""

from importlib.util import find_spec

NEEDING_IT = ["test_rewriting.py", "test_own_kernels.py", "test_kernels.py"]
collect_ignore = [] if find_spec("libcst") else NEEDING_IT
