"""The names of a tensor in a kernel: AWS's documented names, and no internal ones."""

import numpy as np
import pytest

from difftest.simulator import MissingNameError, NotModelledError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.indexing import IndexedTile
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.nki import isa as todays_isa
from difftest.simulator.frontend.nki import language as todays
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.tensor import IndirectTensor, NkiTensor
from tests.every import every

COMMON = {"dtype", "ndim", "reshape", "shape", "view"}
CLASSIC = COMMON | {
    "T",
    "assert_shape",
    "astype",
    "broadcast_to",
    "expand_dims",
    "itemsize",
}
"""Class ``nki.tensor`` at v2.26.0; and ``T``, with a note or an error."""
TODAYS = COMMON | {
    "ap",
    "broadcast",
    "buffer",
    "expand_dim",
    "flatten_dims",
    "get_pattern",
    "indirect",
    "is_contiguous",
    "is_indirect",
    "name",
    "offset",
    "permute",
    "rearrange",
    "reshape_dim",
    "select",
    "size",
    "slice",
    "squeeze_dim",
    "strides",
    "vector_select",
    "data",
    "reinterpret_cast",
}
"""Class ``nl.NkiTensor`` at v2.32.0; and the two that other pages of AWS's ask of tensors."""
OURS = {
    "axes",
    "check_bounds",
    "descriptor",
    "elements",
    "engine_values",
    "gather",
    "give",
    "holds_bits",
    "in_hbm",
    "mark",
    "origin",
    "partition_axis",
    "pattern",
    "read",
    "scatter",
    "signature",
    "space",
    "storage",
    "take",
    "tile_shape",
    "unwritten",
    "values",
    "whole",
}
"""Names that the simulator calls everywhere: none of them resembles a name of AWS's tensor."""


@every(
    "kind, names",
    [
        # names of the current dialect, of the class that both have
        (
            Tensor,
            CLASSIC | {"offset", "size", "strides"},
        ),
        (NkiTensor, TODAYS),
        (IndirectTensor, TODAYS),
        (DynamicView, TODAYS - {"data", "indirect"}),
        (IndexedTile, {"dtype", "shape", "size"}),
    ],
)
def test_a_tensor_has_the_public_names_that_aws_documents(kind, names):
    assert {name for name in dir(kind) if not name.startswith("_")} == names


OF_CLASSIC = ("broadcast_to", "expand_dims", "assert_shape", "astype", "T")
OF_TODAYS = ("broadcast", "expand_dim", "reinterpret_cast", "permute", "ap")


@every(
    "module, missing",
    [
        *(
            (todays, name)
            for name in (*OF_CLASSIC, "derive", "reinterpret", "with_pattern")
        ),
        *((nl, name) for name in (*OF_TODAYS, "derive", "reinterpret", "with_pattern")),
    ],
)
def test_a_name_of_the_other_dialect_or_of_the_simulator_is_none(module, missing):
    def kernel(x):
        tile = module.load(x)
        getattr(tile, missing)
        return tile

    with pytest.raises(AttributeError, match=f"has no attribute '{missing}'"):
        launch(kernel, [np.zeros((2, 3), np.float32)])


MISSPELT = [(todays, "broadcast_to", "broadcast"), (nl, "broadcst_to", "broadcast_to")]


@every("module, name, meant", MISSPELT)
def test_a_misspelt_name_says_which_one_is_meant(module, name, meant):
    with pytest.raises(MissingNameError, match=rf"did you mean {meant}\?"):
        launch(lambda x: getattr(module.load(x), name), [np.zeros((2, 3), np.float32)])


@every("isa, language", [(nisa, nl), (todays_isa, todays)])
def test_a_misspelt_member_says_which_one_is_meant(isa, language):
    members = (
        ("reduce_cmd", "reset_reduse", "reset_reduce"),
        ("engine", "vektor", "vector"),
    )
    sizes = language.tile_size, "pmx", "pmax"
    for kind, name, meant in (
        *((getattr(isa, kind), *names) for kind, *names in members),
        sizes,
    ):
        with pytest.raises(MissingNameError, match=rf"did you mean {meant}\?"):
            getattr(kind, name)


@every("module", [nl, todays])
def test_as_tile_is_not_modelled_and_has_a_remedy(module):
    with pytest.raises(NotModelledError, match="use the tensor itself"):
        launch(lambda x: module.load(x).as_tile(), [np.zeros((2, 3), np.float32)])
