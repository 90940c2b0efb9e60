from typing import Annotated, Optional, Union

import numpy as np
import pytest

from difftest.simulator import KernelError, launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.annotations import is_mutable
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.simulator.stored import stored


@every(
    "annotation, mutable",
    [
        (nt.mutable_tensor, True),
        (nt.mutable_tensor[128, 512], True),
        ("nt.mutable_tensor", True),
        ("mutable_tensor[128]", True),
        (nt.tensor[nt.mutable], True),
        (nt.tensor[128, 512, nt.mutable], True),
        (nt.tensor[128, 512][nt.mutable], True),
        (nt.tensor[nt.mutable][128, 512], True),
        ("nt.tensor[nt.mutable]", True),
        ("typing.tensor[128, nt.mutable]", True),
        ("'nt.tensor[nt.mutable]'", True),
        (Optional[nt.mutable_tensor], True),  # noqa: UP045
        (nt.tensor[nt.mutable] | None, True),
        (None | nt.mutable_tensor, True),
        (Union[int, "nt.mutable_tensor"], True),
        ("nt.mutable_tensor | None", True),
        ("Optional[nt.tensor[nt.mutable]]", True),
        (list[nt.mutable_tensor], True),
        (dict[str, nt.tensor[nt.mutable]], True),
        (Annotated[nt.mutable_tensor, "a cache"], True),
        (Optional[nt.tensor], False),  # noqa: UP045
        (nt.tensor | None, False),
        ("nt.tensor | None", False),
        ("nt.tensor['", False),
        ("MutableMapping", False),
        ("nt.immutable", False),
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


def test_the_repr_of_an_annotation_is_its_source():
    assert repr(nt.tensor) == "nt.tensor"
    assert repr(nt.mutable_tensor[128, 512]) == "nt.mutable_tensor[128, 512]"
    assert repr(nt.tensor[128]) == "nt.tensor[128]"
    assert repr(nt.tensor[nt.mutable]) == "nt.tensor[nt.mutable]"
    assert repr(nt.tensor[128, nt.mutable]) == "nt.tensor[128, nt.mutable]"


WAYS = {  # how a file imports NKI's types, and how it annotates the parameter that it writes
    "the module": ("import neuronxcc.nki.typing as nt", "nt.tensor[nt.mutable]"),
    "by another name": (
        "import neuronxcc.nki.typing as types",
        "types.tensor[types.mutable]",
    ),
    "in full": ("import neuronxcc.nki.typing", "neuronxcc.nki.typing.mutable_tensor"),
    "the names": (
        "from neuronxcc.nki.typing import mutable, tensor",
        "tensor[mutable]",
    ),
    "a name of its own": (
        "from neuronxcc.nki.typing import mutable_tensor as written",
        "written[4, 5]",
    ),
    "an alias": (
        "import neuronxcc.nki.typing as nt; Cache = nt.tensor[nt.mutable]",
        "Cache",
    ),
    "an optional": ("import neuronxcc.nki.typing as nt", "nt.mutable_tensor | None"),
    "for a checker alone": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: import neuronxcc.nki.typing as nt",
        "nt.tensor[nt.mutable]",
    ),
}
KERNEL = """{future}
from neuronxcc import nki
import neuronxcc.nki.language as nl
{imports}

@nki.jit
def kernel(cache: {annotation}, rows: {other}):
    nl.store(cache, nl.load(rows))
    return cache
"""


@every("name", WAYS)
@every("how", ["evaluated", "quoted", "from __future__ import annotations"])
def test_a_kernel_writes_only_mutable_arguments(name, how):
    imports, annotation = WAYS[name]
    if how == "evaluated" and name == "for a checker alone":
        return  # Python itself does not find the name
    future = how if how.startswith("from") else ""
    quoted = repr(annotation) if how == "quoted" else annotation
    other = "'nt.tensor'"
    for mutable in (True, False):
        text = quoted if mutable else other
        filled = KERNEL.format(
            future=future, imports=imports, annotation=text, other=other
        )
        names = {}
        with embedded():
            exec(compile(filled, "kernel.py", "exec"), names)
        cache = np.zeros((4, 5), np.float32)
        rows = np.ones((4, 5), np.float32)
        if mutable:
            launch(names["kernel"], [cache, rows])
            assert cache.all()
            continue
        with pytest.raises(KernelError, match="mutable_tensor"):
            launch(names["kernel"], [cache, rows])


def test_an_annotation_is_no_function():
    with pytest.raises(KernelError, match=r"nt\.tensor annotates a parameter"):
        nt.tensor((128, 512), np.float32)
