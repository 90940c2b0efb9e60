"""A kernel is named for its function, whatever object an SDK makes of it."""

from functools import partial

from difftest.support.signature import function_name, module_name
from tests.every import every


def scaled(x):
    return x


class Kernel:
    """A kernel object: without a name, and maybe with its function."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __call__(self, x):
        return x


class Shown(Kernel):
    def __repr__(self):
        return self.text


@every(
    "kernel, name",
    [
        (scaled, "scaled"),
        (Kernel(func=scaled), "scaled"),
        (Kernel(__wrapped__=Kernel(fn=scaled)), "scaled"),
        (partial(scaled, 1), "scaled"),
        (Kernel(func_name="scaled"), "scaled"),
        (Shown(text="<nki Kernel function=scaled>"), "scaled"),
        (Shown(text="<NKI kernel kernels.of.mine.scaled>"), "scaled"),
        (Shown(text="Kernel(function 'scaled', grid=(2,))"), "scaled"),
        (Shown(text="<kernel object at 0x7f98a4074190>"), "Shown"),
        (Kernel(), "Kernel"),
    ],
)
def test_the_name_of_a_kernel(kernel, name):
    assert function_name(kernel) == name


def test_a_kernel_object_has_the_module_of_its_function():
    assert module_name(Kernel(func=len)) == Kernel.__module__
    scaled.__module__ = "kernels.mine"
    assert module_name(Kernel(func=scaled)) == "kernels.mine"
