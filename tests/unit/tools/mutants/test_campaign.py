"""The digest of the package's code, which decides whether kept results still count."""

import pytest

from difftest.tools.mutants.campaign import package_digest


def test_a_folder_without_modules_has_no_digest():
    with pytest.raises(FileNotFoundError, match="difftest/scale has no modules"):
        package_digest("scale")
