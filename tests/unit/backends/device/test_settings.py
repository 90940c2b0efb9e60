import pytest

from difftest.backends.device.core import SettingError, Settings, read_settings
from tests.every import every


def test_nothing_set_is_what_is_usual():
    assert read_settings({}) == Settings()


def test_what_is_set_counts():
    settings = read_settings(
        {
            "DIFFTEST_DEVICE_TIMEOUT": "12.5",
            "NEURON_RT_EXEC_TIMEOUT": "7",
            "DIFFTEST_NRTPY_PYTHON": "/env/bin/python",
        }
    )
    assert settings == Settings(12.5, 7, "/env/bin/python")


@every("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_number_that_is_none_names_the_variable(text):
    with pytest.raises(
        SettingError, match=rf"DIFFTEST_DEVICE_TIMEOUT: received '{text}'; accepted"
    ):
        read_settings({"DIFFTEST_DEVICE_TIMEOUT": text})
