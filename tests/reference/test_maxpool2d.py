import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import maxpool2d as module
from reference.maxpool2d import maxpool2d, maxpool2d_direct
from reference.windows import windows
from tests.every import every
from tests.reference.strategies import DTYPES, arrays, windows_that_fit


@given(st.data(), windows_that_fit(), st.sampled_from(DTYPES))
def test_fast_form_equals_the_definition(data, drawn, dtype):
    (height, width), arguments = drawn
    X = data.draw(arrays((2, 2, height, width), dtype))
    fast = maxpool2d(X, **arguments)
    direct = maxpool2d_direct(X, **arguments)
    assert fast.dtype == direct.dtype == X.dtype
    np.testing.assert_array_equal(fast.astype(float), direct.astype(float), strict=True)


@every("dtype", [np.float64, np.float32, np.float16, np.int8])
def test_the_windows_are_views_of_the_images(monkeypatch, dtype):
    X = np.ones((2, 4, 6, 6), dtype)
    shared = []

    def spy(images, *arguments):
        view = windows(images, *arguments)
        shared.append(np.shares_memory(view, X))
        return view

    monkeypatch.setattr(module, "windows", spy)
    maxpool2d(X, 3, stride=1, dilation=2)
    assert shared == [True]


def both(*arguments, **options):
    """The result of the definition and of the fast form, which must be one."""
    direct = maxpool2d_direct(*arguments, **options)
    fast = maxpool2d(*arguments, **options)
    np.testing.assert_array_equal(direct, fast)
    return direct.tolist()


# Worked out by hand: the two forms share their reading of arguments.
def test_windows_are_side_by_side_by_default():
    assert both([[[[1, 5, 2, 3, 9]]]], (1, 2)) == [[[[5, 3]]]]
    assert both([[[[1, 5, 2, 3, 9]]]], (1, 2), stride=1) == [[[[5, 5, 3, 9]]]]


@every("dtype", [np.int32, np.float32, ml_dtypes.bfloat16])
def test_padding_never_wins(dtype):
    X = np.array([[[[-3, -2]]]], dtype)
    pooled = maxpool2d(X, (1, 2), padding=(0, 1))
    assert pooled.tolist() == [[[[-3, -2]]]]


def test_a_dilated_window_skips_elements():
    assert both([[[[1, 9, 2, 0]]]], (1, 2), stride=1, dilation=(1, 2)) == [[[[2, 9]]]]


def test_a_nan_is_the_largest():
    assert np.isnan(both([[[[1.0, np.nan, np.inf]]]], (1, 3))).all()


def test_a_window_wholly_in_the_border_is_the_least_value():
    options = {
        "kernel_size": (1, 2),
        "stride": 1,
        "padding": (0, 1),
        "dilation": (1, 2),
    }
    assert both([[[[1.0]]]], **options) == [[[[-np.inf]]]]
    assert both(np.array([[[[1]]]], np.int8), **options) == [[[[-128]]]]
    assert both(np.array([[[[True]]]]), **options) == [[[[False]]]]


def test_the_largest_integers_are_not_rounded():
    X = np.array([[[[2**62, 2**62 + 1]]]])
    assert both(X, (1, 2)) == [[[[2**62 + 1]]]]


def test_the_result_is_no_view_of_the_argument():
    X = np.ones((1, 1, 2, 2))
    assert not np.shares_memory(maxpool2d(X, 1), X)


@every("form", [maxpool2d, maxpool2d_direct])
@every(
    "arguments, message",
    [
        (
            {"X": np.zeros((5, 5))},
            r"^X: received shape \(5, 5\); accepted: 4 axes \(batch",
        ),
        (
            {"X": np.zeros((0, 1, 5, 5))},
            r"^X: received shape \(0, 1, 5, 5\); accepted: every axis",
        ),
        (
            {"kernel_size": 0},
            "^kernel_size: received 0; accepted: one or two integers >= 1",
        ),
        (
            {"kernel_size": 6},
            "^X: received images of 5 x 5, padding included; accepted: at least",
        ),
        (
            {"padding": (0, 2)},
            r"^padding: received \(0, 2\); accepted: less than the window's",
        ),
        ({"ceil_mode": True}, "^ceil_mode: received True; accepted: False: output"),
    ],
)
def test_bad_arguments_are_named(form, arguments, message):
    with pytest.raises(ValueError, match=message):
        form(**{"X": np.zeros((1, 1, 5, 5)), "kernel_size": 2, **arguments})
