import pytest

import difftest


def test_each_public_name_is_there():
    for name in difftest.__all__:
        assert getattr(difftest, name).__name__ == name
    assert dir(difftest) == sorted(difftest.__all__)


def test_another_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match="module 'difftest' has no attribute 'kernel_tests'"
    ):
        _ = difftest.kernel_tests
