"""Today's dialect in plain mode: registers, loops on the device, and what a launch is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.constants import MemoryRegion, nc_version, region_of, space_of
from difftest.simulator.plain import rules
from difftest.simulator.plain.indices import integer, integers
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.nki.moves import ANY, full, ndarray
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.nki.tensors import PlainRegister
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor

_DMA = rules.view(*rules.DMA)


# -- registers ------------------------------------------------------------------------------------


def register(value: Any, name: str, where: str) -> PlainRegister:
    """A role: a register."""
    known = isinstance(value, PlainRegister)
    rules.require(known, f"{where} takes {name} as a register", value, error=KernelError)
    found: PlainRegister = value
    return found


def _one(value: Any, name: str, where: str) -> PlainTensor:
    tensor: PlainTensor = _DMA(value, name, where)
    rules.require(tensor.size == 1, f"{where} takes {name} of one element", tensor)
    whole = tensor.dtype.kind in "iu" and tensor.itemsize <= 4
    rules.require(whole, f"{where} takes {name} as an integer", tensor, error=KernelError)
    return tensor


@means(f"{TODAYS}nisa.register_alloc")
def register_alloc(x: Any) -> PlainRegister:
    """A register that holds ``x``, or nothing."""
    made = PlainRegister()
    if x is not None:
        made.set(integer(x, "a register's value"))
    return made


@means(f"{TODAYS}nisa.register_move", dst=register)
def register_move(dst: PlainRegister, src: Any) -> None:
    """``dst = src``, an integer or another register."""
    dst.set(src.get() if isinstance(src, PlainRegister) else integer(src, "a register's value"))


@means(f"{TODAYS}nisa.register_load", dst=register, src=_one)
def register_load(dst: PlainRegister, src: PlainTensor) -> None:
    """``dst = src``, a tensor of one integer."""
    dst.set(int(src.read().reshape(-1)[0]))


@means(f"{TODAYS}nisa.register_store", dst=_one, src=register)
def register_store(dst: PlainTensor, src: PlainRegister) -> None:
    """The register's low bits to a tensor of one integer."""
    bits = np.array(src.get(), np.int64).astype(dst.dtype)
    dst.write(np.full(dst.shape, bits))


# -- loops on the device --------------------------------------------------------------------------


def _numbers(lower: Any, upper: Any, step: Any) -> range:
    ends = (end.get() if isinstance(end, PlainRegister) else end for end in (lower, upper))
    first, last, by = (integer(number, "a loop's bound") for number in (*ends, step))
    rules.require(by > 0, "a loop's step is positive", step, error=KernelError)
    return range(first, last, by)


@means(f"{TODAYS}nl.fori_loop")
def fori_loop(lower: Any, upper: Any, body_fun: Any, step: Any) -> None:
    """``body_fun(i)`` for each i."""
    for number in _numbers(lower, upper, step):
        body_fun(PlainRegister(number, frozen=True))


@means(f"{TODAYS}nl.while_loop", init=register)
def while_loop(init: PlainRegister, body_fun: Any) -> None:
    """``r = body_fun(r)`` while ``r`` is not 0."""
    held = init
    while held.get():
        held = register(body_fun(PlainRegister(held.get())), "what body_fun returns", "while_loop")


@means(f"{TODAYS}nl.dynamic_range")
def dynamic_range(start: Any, stop: Any, step: Any) -> Iterator[PlainRegister]:
    """The integers of a range, in registers."""
    first, last = (0, start) if stop is None else (start, stop)
    return (PlainRegister(number, frozen=True) for number in _numbers(first, last, step))


# -- the launch, its machine and its memories -----------------------------------------------------


@means(f"{TODAYS}nl.program_ndim")
def program_ndim() -> int:
    """How many dimensions the launch grid has."""
    return len(current().grid)


@means(f"{TODAYS}nisa.get_nc_version")
def get_nc_version() -> Any:
    """The generation of the machine."""
    return nc_version(current().machine.nc_version)


@means(f"{TODAYS}nl.par_dim")
def par_dim(size: Any) -> int:
    """``size`` itself."""
    return integers(size, "nl.par_dim")[0]


@means(f"{TODAYS}nl.is_hbm")
def is_hbm(buffer: Any) -> bool:
    """Whether a memory is HBM."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


@means(f"{TODAYS}nl.is_sbuf")
def is_sbuf(buffer: Any) -> bool:
    """Whether a memory is SBUF."""
    return bool(buffer is MemoryRegion.sbuf)


@means(f"{TODAYS}nl.is_psum")
def is_psum(buffer: Any) -> bool:
    """Whether a memory is PSUM."""
    return bool(buffer is MemoryRegion.psum)


@means(f"{TODAYS}nl.is_on_chip")
def is_on_chip(buffer: Any) -> bool:
    """Whether a memory is SBUF or PSUM."""
    return buffer in (MemoryRegion.sbuf, MemoryRegion.psum)


@means(f"{TODAYS}nl.empty_like", x=ANY)
def empty_like(x: PlainTensor, dtype: Any, buffer: Any, name: str) -> PlainTensor:
    """A new tensor in the shape of ``x``, and by default in its dtype and memory."""
    wanted = x.dtype if dtype is None else rules.needed_dtype(dtype, "dtype", "nl.empty_like")
    place = region_of(x.space) if buffer is None else buffer
    return ndarray(x.shape, wanted, space_of(place, "nl.empty_like"), name, None)


@means(f"{TODAYS}nl.zeros_like", x=ANY)
def zeros_like(x: PlainTensor, dtype: Any, buffer: Any, name: str) -> PlainTensor:
    """Zeros in the shape of ``x``."""
    made = empty_like(x, dtype, buffer, name)
    return full(x.shape, 0, made.dtype, made.space, name)
