import numpy as np

from difftest.simulator.frontend.classic import typing as nt
from difftest.simulator.frontend.classic.typing import is_mutable
from tests.every import every
from tests.unit.simulator.stored import stored


@every(
    "annotation, mutable",
    [
        (nt.mutable_tensor, True),
        (nt.mutable_tensor[128, 512], True),
        ("nt.mutable_tensor", True),
        ("mutable_tensor[128]", True),
        (nt.tensor, False),
        (nt.tensor[128], False),
        ("nt.tensor", False),
        (nt.scalar, False),
        (np.ndarray, False),
        (None, False),
    ],
)
def test_which_annotations_let_a_kernel_write(annotation, mutable):
    assert is_mutable(annotation) is mutable


def test_tensors_are_instances_of_the_annotations():
    tensor = stored(np.zeros((2, 3), np.float32))
    assert isinstance(tensor, nt.tensor)
    assert not isinstance(3, nt.tensor)


def test_they_show_themselves():
    assert repr(nt.tensor) == "nt.tensor"
    assert repr(nt.mutable_tensor[128, 512]) == "nt.mutable_tensor[128, 512]"
    assert repr(nt.tensor[128]) == "nt.tensor[128]"
