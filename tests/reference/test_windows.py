import numpy as np
import pytest
from hypothesis import given

from reference.windows import Window, windows
from tests.every import every
from tests.reference.strategies import both_axes, windows_that_fit


@given(windows_that_fit(most_padding=0))
def test_each_window_holds_the_elements_under_its_taps(drawn):
    (height, width), arguments = drawn
    del arguments["padding"]
    images = np.arange(2 * height * width).reshape(2, height, width)
    view = windows(images, **arguments)
    down, across = both_axes(arguments["stride"])
    d, e = both_axes(arguments["dilation"])
    for n, y, x, i, j in np.ndindex(*view.shape):
        assert view[n, y, x, i, j] == images[n, y * down + i * d, x * across + j * e]


def test_windows_share_the_memory_of_the_images_also_in_groups():
    images = np.zeros((2, 6, 9, 9))
    assert np.shares_memory(windows(images, 3, stride=2, dilation=2), images)
    grouped = images.reshape(2, 3, 2, 9, 9)
    assert np.shares_memory(windows(grouped, (1, 3)), images)


def test_an_image_without_a_border_is_not_copied():
    images = np.zeros((1, 1, 3, 3))
    assert Window.of(2, 1, 0, 1).pad(images, 0.0) is images


# Sizes from the formula in the documentation of torch.nn.Conv2d, worked out by hand.
@every(
    "image, arguments, size",
    [
        ((5, 5), (3, 1, 0, 1), (3, 3)),
        ((5, 5), (3, 2, 1, 1), (3, 3)),
        ((224, 224), (7, 2, 3, 1), (112, 112)),
        ((6, 7), (2, 2, 0, 1), (3, 3)),
        ((32, 16), ((3, 5), (2, 1), (4, 2), (3, 1)), (17, 16)),
        ((4, 4), (2, 1, (1, 0, 0, 2), 1), (4, 5)),
    ],
)
def test_a_window_has_this_number_of_positions(image, arguments, size):
    assert Window.of(*arguments).positions(*image) == size


@every(
    "arguments, message",
    [
        ((0, 1, 0, 1), "^kernel_size: received 0; accepted: one or two integers >= 1$"),
        (
            ((1, 2, 3), 1, 0, 1),
            r"^kernel_size: received \(1, 2, 3\); accepted: one or two",
        ),
        ((1, 1.5, 0, 1), "^stride: received 1.5; accepted: one or two integers >= 1$"),
        (
            (1, 1, 0, (1, -1)),
            r"^dilation: received \(1, -1\); accepted: one or two integers",
        ),
        (
            (1, 1, "same", 1),
            "^padding: received 'same'; accepted: one, two or four integers >= 0$",
        ),
        ((1, 1, (), 1), r"^padding: received \(\); accepted: one, two or four"),
        ((1, 1, -1, 1), "^padding: received -1; accepted"),
    ],
)
def test_arguments_that_are_no_window_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Window.of(*arguments)


def test_a_window_larger_than_the_image_is_refused():
    received = "received images of 4 x 6, padding included"
    message = f"^X: {received}; accepted: at least the window's 5 x 5$"
    with pytest.raises(ValueError, match=message):
        Window.of(3, 1, 1, 2).positions(2, 4)
