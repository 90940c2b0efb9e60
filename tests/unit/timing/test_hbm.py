import pytest

from difftest.timing.dma import WINDOW, SharedHbm


def test_two_transfers_together_get_the_full_bandwidth():
    """848 bytes a ns are requested and 725 are available: the second ends later, at its rate."""
    hbm = SharedHbm(725.0)
    length = 100 * WINDOW
    count = 424.0 * 100 * WINDOW
    first, second = (hbm.take(0.0, length, count) for _ in range(2))
    assert first == length
    assert second == pytest.approx(length + length * (848 - 725) / 424)


def test_an_earlier_transfer_is_not_delayed_by_a_later_one():
    hbm = SharedHbm(725.0)
    hbm.take(50 * WINDOW, 60 * WINDOW, 725.0 * 10 * WINDOW)
    assert hbm.take(0.0, 10 * WINDOW, 400.0 * 10 * WINDOW) == 10 * WINDOW


def test_no_window_gives_more_than_it_has():
    hbm = SharedHbm(100.0)
    for _ in range(7):
        hbm.take(300.0, 2300.0, 80.0 * 2000)
    assert max(hbm._taken.values()) <= 100.0 * WINDOW + 1e-6
    assert sum(hbm._taken.values()) == pytest.approx(7 * 80.0 * 2000)
