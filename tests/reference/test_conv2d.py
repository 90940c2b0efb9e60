import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import conv2d as module
from reference.conv2d import conv2d, conv2d_direct
from reference.windows import windows
from tests.every import every
from tests.reference.strategies import DTYPES, arrays, both_axes, windows_that_fit


@st.composite
def convolutions(draw):
    """Arguments of a convolution, with integers as data: every sum is exact."""
    (height, width), window = draw(windows_that_fit())
    taps = both_axes(window.pop("kernel_size"))
    batch, groups, per_group, out_per_group = (
        draw(st.integers(1, 2)) for _ in range(4)
    )
    dtype = draw(st.sampled_from(DTYPES))
    X = draw(arrays((batch, groups * per_group, height, width), dtype))
    W = draw(arrays((groups * out_per_group, per_group, *taps), dtype))
    bias = draw(st.none() | arrays((groups * out_per_group,), dtype))
    return {"X": X, "W": W, "bias": bias, "groups": groups, **window}


@given(convolutions())
def test_fast_form_equals_the_definition(arguments):
    fast = conv2d(**arguments)
    direct = conv2d_direct(**arguments)
    assert fast.dtype == direct.dtype == np.float64
    np.testing.assert_array_equal(fast, direct, strict=True)


@given(convolutions(), st.integers(1, 2**10))
def test_blocks_of_any_size_give_the_same(arguments, patch_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PATCH_BYTES", patch_bytes)
        blocked = conv2d(**arguments)
    np.testing.assert_array_equal(blocked, conv2d(**arguments))


def test_fractions_agree_to_float64_rounding():
    rng = np.random.default_rng(7)
    X, W, bias = (
        rng.standard_normal(shape) for shape in ((2, 6, 9, 8), (4, 3, 3, 3), (4,))
    )
    arguments = (X, W, bias, 2, 1, 1, 2)
    np.testing.assert_allclose(
        conv2d(*arguments), conv2d_direct(*arguments), rtol=0, atol=1e-13
    )


def test_the_windows_are_views_of_the_images(monkeypatch):
    X = np.ones((2, 4, 6, 6))
    shared = []

    def spy(images, *arguments):
        view = windows(images, *arguments)
        shared.append(np.shares_memory(view, X))
        return view

    monkeypatch.setattr(module, "windows", spy)
    conv2d(X, np.ones((4, 2, 3, 3)), stride=2, dilation=2, groups=2)
    assert shared == [True]


def both(*arguments, **options):
    """The result of the definition and of the fast form, which must be one."""
    direct = conv2d_direct(*arguments, **options)
    fast = conv2d(*arguments, **options)
    np.testing.assert_array_equal(direct, fast)
    return direct.tolist()


# Worked out by hand: the two forms share their reading of arguments, so a mistake there would
# make them agree on a wrong answer.
def test_the_filter_is_not_flipped():
    assert both([[[[1, 2, 3]]]], [[[[1, 10]]]]) == [[[[21, 32]]]]


def test_padding_as_in_onnx_is_top_left_bottom_right():
    assert both([[[[1]]]], [[[[1]]]], padding=(1, 0, 0, 2)) == [
        [[[0, 0, 0], [1, 0, 0]]]
    ]


def test_padding_as_in_torch_is_vertical_horizontal():
    assert both([[[[1]]]], [[[[1]]]], padding=(1, 0)) == [[[[0], [1], [0]]]]


def test_stride_and_dilation_apply_along_each_axis():
    image = [[[list(range(9))]]]
    assert both(image, [[[[1, 10]]]], stride=(1, 3), dilation=(1, 2)) == [
        [[[20, 53, 86]]]
    ]


def test_groups_see_their_own_channels():
    image = [[[[1]], [[2]], [[3]], [[4]]]]
    filters = [[[[1]], [[10]]], [[[100]], [[1000]]]]
    assert both(image, filters, groups=2) == [[[[21]], [[4300]]]]


def test_bias_belongs_to_the_output_channel():
    assert both([[[[1, 2]]]], [[[[1]]], [[[1]]]], bias=[10, 20]) == [
        [[[11, 12]], [[21, 22]]]
    ]


X = np.zeros((1, 4, 5, 5))
W = np.zeros((6, 4, 3, 3))


@every("form", [conv2d, conv2d_direct])
@every(
    "arguments, message",
    [
        (
            {"X": X[0]},
            r"^X: received shape \(4, 5, 5\); accepted: 4 axes \(batch, channels",
        ),
        (
            {"X": X[:, :, :0]},
            r"^X: received shape \(1, 4, 0, 5\); accepted: every axis at least 1",
        ),
        (
            {"W": W[0]},
            r"^W: received shape \(4, 3, 3\); accepted: 4 axes \(out channels",
        ),
        (
            {"W": W[:0]},
            r"^W: received shape \(0, 4, 3, 3\); accepted: every axis at least 1",
        ),
        (
            {"W": W[:, :3]},
            "^W: received 3 channels a filter; accepted: 4: 4 channels of X in 1",
        ),
        (
            {"groups": 2},
            "^W: received 4 channels a filter; accepted: 2: 4 channels of X in 2",
        ),
        (
            {"groups": 3},
            "^groups: received 3; accepted: a divisor of the 4 channels of X and",
        ),
        ({"groups": 0}, "^groups: received 0; accepted: an integer >= 1"),
        ({"groups": 2.0}, "^groups: received 2.0; accepted: an integer >= 1"),
        (
            {"bias": np.zeros(4)},
            "^bias: received 4 values; accepted: 6, one for each filter of W",
        ),
        (
            {"bias": 1.0},
            r"^bias: received shape \(\); accepted: 1 axes \(out channels\)",
        ),
        ({"stride": 0}, "^stride: received 0; accepted: one or two integers >= 1"),
        (
            {"dilation": 3},
            "^X: received images of 5 x 5, padding included; accepted: at least",
        ),
        (
            {"X": X.astype(complex)},
            "^X: received dtype complex128; accepted: integers or real",
        ),
    ],
)
def test_bad_arguments_are_named(form, arguments, message):
    with pytest.raises(ValueError, match=message):
        form(**{"X": X, "W": W, **arguments})
