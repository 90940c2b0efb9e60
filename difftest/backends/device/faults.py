"""What an error of the runtime or the compiler means: whose fault it is, and what to do about it.

Sources, all public AWS Neuron documentation at tag v2.32.0: NRT codes from
``neuron-runtime/api/nrt_status.rst``, their causes from ``neuron-runtime/nrtpy/errors.rst`` and
``nrtpy-troubleshooting.rst``; NCC codes from ``compiler/error-codes/index.rst``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Blame(Enum):
    """Whose fault an error is."""

    KERNEL = "kernel"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Fault:
    """An error code that was recognised."""

    code: str
    blame: Blame
    hint: str

    def __str__(self) -> str:
        return f"{self.code} ({self.blame.value}): {self.hint}"


_K, _I = Blame.KERNEL, Blame.INFRASTRUCTURE

NRT: dict[str, tuple[int, Blame, str]] = {
    "NRT_FAILURE": (
        1,
        _K,
        "a failure without a cause; on loading, often a NEFF that is damaged, or compiled for "
        "another target: see NEURON_PLATFORM_TARGET_OVERRIDE",
    ),
    "NRT_INVALID": (2, _K, "an invalid NEFF, instruction, or input tensor's name or size"),
    "NRT_INVALID_HANDLE": (3, _I, "a handle of the runtime is not valid any more"),
    "NRT_RESOURCE": (
        4,
        _I,
        "a resource is missing, often device memory: is another process on it?",
    ),
    "NRT_TIMEOUT": (5, _I, "the execution timed out: see NEURON_RT_EXEC_TIMEOUT, in seconds"),
    "NRT_HW_ERROR": (6, _I, "a hardware failure"),
    "NRT_QUEUE_FULL": (7, _I, "the execution queue is full"),
    "NRT_LOAD_NOT_ENOUGH_NC": (
        9,
        _I,
        "not enough NeuronCores are free: end the process that holds them (neuron-ls), or see "
        "NEURON_RT_VISIBLE_CORES",
    ),
    "NRT_UNSUPPORTED_NEFF_VERSION": (
        10,
        _I,
        "the runtime is older or newer than the compiler: install both from one SDK release",
    ),
    "NRT_FAIL_HOST_MEM_ALLOC": (11, _I, "the host has no memory left"),
    "NRT_UNINITIALIZED": (
        13,
        _I,
        "the runtime was not initialised: are the driver and devices here?",
    ),
    "NRT_CLOSED": (14, _I, "the runtime is closed already"),
    "NRT_QUEUE_EMPTY": (15, _I, "a queue without data was read"),
    "NRT_EXEC_UNIT_UNRECOVERABLE": (
        101,
        _I,
        "the execution unit cannot recover: restart the instance",
    ),
    "NRT_EXEC_BAD_INPUT": (1002, _K, "the inputs do not fit the NEFF: names, shapes or sizes"),
    "NRT_EXEC_COMPLETED_WITH_NUM_ERR": (1003, _K, "the kernel produced NaN"),
    "NRT_EXEC_COMPLETED_WITH_ERR": (1004, _K, "the kernel ran to its end with errors"),
    "NRT_EXEC_NC_BUSY": (
        1005,
        _I,
        "another process holds the NeuronCore: neuron-ls names it; under pytest -n each worker "
        "leases a core of its own",
    ),
    "NRT_EXEC_OOB": (
        1006,
        _K,
        "an indirect DMA went out of bounds: check the kernel's indices against the tensor's shape",
    ),
    "NRT_COLL_PENDING": (1100, _I, "a collective operation is still pending"),
    "NRT_EXEC_HW_ERR_COLLECTIVES": (1200, _I, "stuck in a collective operation"),
    "NRT_EXEC_HW_ERR_HBM_UE": (1201, _I, "an error in HBM that cannot be corrected"),
    "NRT_EXEC_HW_ERR_NC_UE": (1202, _I, "a parity error in the NeuronCore's memory"),
    "NRT_EXEC_HW_ERR_DMA_ABORT": (1203, _I, "a DMA engine failed"),
    "NRT_EXEC_SW_NQ_OVERFLOW": (1204, _I, "the notification queue overflowed"),
    "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE": (1205, _I, "an error in HBM: restart the instance"),
    "NRT_NETWORK_PROXY_FAILURE": (1206, _I, "the network proxy failed"),
}
"""Status name -> number, blame, hint."""

_BY_NUMBER = {number: name for name, (number, _, _) in NRT.items()}

NCC = {
    "NCC_EARG001": "the logical NeuronCore configuration does not fit the target: see "
    "NEURON_LOGICAL_NC_CONFIG",
    "NCC_EBVF030": "too many instructions: make the case smaller, or unroll less",
    "NCC_EXTP004": "too many instructions: make the case smaller, or unroll less",
    "NCC_EVRF007": "too many instructions: make the case smaller, or unroll less",
    "NCC_EOOM001": "the tensors do not fit device memory: make the case smaller",
    "NCC_EOOM002": "the tensors do not fit device memory: make the case smaller",
    "NCC_EVRF009": "the tensors do not fit device memory: make the case smaller",
    "NCC_EXSP001": "the tensors do not fit device memory: make the case smaller",
    "NCC_ESPP004": "a data type that the compiler has no code for",
    "NCC_ESPP047": "an 8-bit floating-point type that the compiler does not support",
    "NCC_EVRF005": "an 8-bit floating-point type that the compiler does not support",
    "NCC_EVRF051": "float8_e4m3fn is not supported on trn1 and trn2",
    "NCC_EVRF059": "the kernel's file is gone: clear the NKI file cache and run again",
    "NCC_EVRF065": "the kernel was traced with another NKI version: install nki and neuronx-cc "
    "from one SDK release",
    "NCC_EUOC002": "an unsupported operator",
    "NCC_EVRF001": "an unsupported operator",
}
"""Codes that a kernel by itself can meet; the others are about models."""

_NCC_PAGE = "AWS Neuron documentation, Neuron Compiler Error Codes"

_NRT_NAME = re.compile(r"\b(NRT_[A-Z_]+)\b(?:\s*\((\d+)\))?")
_NRT_NUMBER = re.compile(r"\b(?:NRT|nrt_\w+|status|ret(?:urned)?)\b[^\n\d]{0,24}?\b(\d{1,4})\b")
_NCC_CODE = re.compile(r"\bNCC_[A-Z]+\d+\b")


def find_fault(text: str) -> Fault | None:
    """The first NRT or NCC code in an error's text or a log; None if there is none.

    The name of an NRT status decides, for public pages show numbers that belong to another name;
    a number alone is looked up.
    """
    for match in _NRT_NAME.finditer(text):
        name, number = match[1], match[2]
        if name in NRT:
            code, blame, hint = NRT[name]
            odd = (
                f"; the number {number} is {_BY_NUMBER.get(int(number), 'of no status')}"
                if (number is not None and int(number) != code)
                else ""
            )
            return Fault(f"{name}({number or code})", blame, hint + odd)
    compiler = _NCC_CODE.search(text)
    if compiler:
        hint = NCC.get(compiler[0], f"see {_NCC_PAGE}")
        return Fault(compiler[0], Blame.KERNEL, hint)
    for match in _NRT_NUMBER.finditer(text):
        name_of = _BY_NUMBER.get(int(match[1]))
        if name_of is not None:
            code, blame, hint = NRT[name_of]
            return Fault(f"{name_of}({code})", blame, hint)
    return None
