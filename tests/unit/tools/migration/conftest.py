"""Skip these tests unless LibCST is installed, which is the case in every tox environment.

The message without LibCST is tested everywhere (tests/unit/cli/test_migrate.py).
"""

from importlib.util import find_spec

NEEDING_IT = ["test_rewriting.py", "test_own_kernels.py", "test_kernels.py"]
collect_ignore = [] if find_spec("libcst") else NEEDING_IT
