"""Packages with AWS's names for the SDK, whose kernels hide the function inside.

They compute by NumPy and share no code with the embedded simulator. They have the instructions that
the vector additions and the softmax of this repository use. Each dialect can be written alone, as
the SDKs of 2.21 to 2.26 have the classic one alone.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.testing.backends.sdk_standin import write_metadata

LANGUAGE = """
import ml_dtypes
import numpy as np

shared_hbm, hbm, sbuf, psum = "shared_hbm", "hbm", "sbuf", "psum"
float32, float16, bfloat16 = np.float32, np.float16, ml_dtypes.bfloat16
add, multiply, maximum, exp = np.add, np.multiply, np.maximum, np.exp
affine_range = sequential_range = range

class tile_size:
    pmax = 128

def ndarray(shape, dtype, buffer=None):
    if buffer in (sbuf, psum) and shape[0] > tile_size.pmax:
        raise ValueError(f"a tile has at most {tile_size.pmax} partitions, got {shape[0]}")
    return np.zeros(shape, dtype)
"""

CLASSIC_ISA = """
def dma_copy(dst, src):
    dst[...] = src.reshape(dst.shape)

def tensor_scalar(data, op0, operand0):
    return op0(data, operand0).astype(data.dtype)

def tensor_tensor(data1, data2, op):
    return op(data1, data2).astype(data1.dtype)
"""

NEWER_ISA = """
import numpy as np

def dma_copy(dst, src):
    dst[...] = src

def tensor_tensor(dst, data1, data2, op):
    dst[...] = op(data1, data2)

def tensor_scalar(dst, data, op0, operand0):
    dst[...] = op0(data, operand0)

def tensor_reduce(dst, op, data, axis, negate=False):
    result = op.reduce(data.astype(np.float32), axis=axis, keepdims=True)
    dst[...] = -result if negate else result

def activation_reduce(dst, op, data, bias, reduce_op, reduce_res):
    dst[...] = op(data.astype(np.float32) + bias)
    reduce_res[...] = reduce_op.reduce(dst, axis=1, keepdims=True)

def reciprocal(dst, data):
    dst[...] = 1 / data
"""

KERNEL = """
class Kernel:
    __slots__ = ("_compiled",)

    def __init__(self, function):
        self._compiled = lambda args, kwargs: function(*args, **kwargs)

    def __getitem__(self, grid):
        return self

    def __call__(self, *args, **kwargs):
        raise RuntimeError("no framework runs this kernel here")
"""

CLASSIC = """
from neuronxcc.nki import compiler, isa, language
from neuronxcc.nki.compile import Kernel

def jit(func=None, mode="auto", **options):
    return Kernel(func)

def simulate_kernel(kernel, *args, **kwargs):
    return kernel._compiled(args, kwargs)

def baremetal(kernel=None, **options):
    return lambda *args, **kwargs: kernel._compiled(args, kwargs)

def benchmark(kernel=None, **options):
    return kernel
"""

COMPILER = """
def skip_middle_end_transformations(kernel):
    return kernel
"""

NEWER = """
from nki import isa, language
from nki.compile import Kernel

__version__ = "0.3.0"

def jit(fn=None, **options):
    return Kernel(fn)

def simulate(kernel):
    return lambda *args, **kwargs: kernel._compiled(args, kwargs)
"""


def write_modules(folder: Path, modules: dict[str, str]) -> None:
    """Write a package: the text of each module, ``__init__`` among them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def write_opaque_classic(folder: Path) -> None:
    """Write the classic dialect alone, as SDK 2.26 has it."""
    write_modules(folder / "neuronxcc", {"__init__": ""})
    parts = {
        "language": LANGUAGE,
        "isa": CLASSIC_ISA,
        "compiler": COMPILER,
        "compile": KERNEL,
    }
    parts["typing"] = "mutable_tensor = tensor = 'an annotation'\n"
    write_modules(folder / "neuronxcc" / "nki", {"__init__": CLASSIC, **parts})
    write_metadata(folder, "neuronx-cc", "2.21.18209.0", "The Neuron compiler.")


def write_opaque_newer(folder: Path) -> None:
    """Write the current dialect; its compiler lacks ``neuronxcc.nki``."""
    parts = {"language": LANGUAGE, "isa": NEWER_ISA, "compile": KERNEL}
    write_modules(folder / "nki", {"__init__": NEWER, **parts})
    if not (folder / "neuronxcc").exists():
        write_modules(folder / "neuronxcc", {"__init__": ""})


WRITERS = {
    "classic": (write_opaque_classic,),
    "newer": (write_opaque_newer,),
    "both": (write_opaque_classic, write_opaque_newer),
}
"""Functions that write the SDK of each situation."""
