"""The call of a kernel for a case, and its run on a backend."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from difftest.support.rounding import Array
from difftest.testing.backends.base import (
    Backend,
    Crashed,
    KernelCall,
    Outcome,
    poisoned_array,
)
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import CaseLimitError, within_limits
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError

# The text of a failure is complete: pytest shows no frame of this module.
__tracebackhide__ = True


def make_call(
    spec: KernelSpec, case: Case, inputs: Iterable[Array] | None = None, **how: Any
) -> KernelCall:
    """Return the call of a case, with copies of all arguments: no backend changes another's.

    ``inputs`` are the case's arrays, if they exist already.
    """
    own = spec.inputs_of(case) if inputs is None else [array.copy() for array in inputs]
    arrays = spec.arrays
    return KernelCall(
        kernel=spec.kernel,
        inputs=tuple(own),
        outputs=tuple(
            poisoned_array(spec.shape_of(case, name), spec.written_dtype(case, name))
            for name in arrays[len(spec.inputs) :]
        ),
        parameters=copy.deepcopy(spec.parameters_of(case.values)),
        grid=spec.grid_of(case.values),
        machine=spec.machine_of(case.values),
        names=arrays,
        ranks=spec.ranks_of(case.values),
        by_rank=spec.by_rank,
        targets=tuple(map(arrays.index, spec.outputs)),
        **how,
    )


def call_of_case(spec: KernelSpec, case: Case) -> tuple[list[Array], dict[str, Any]]:
    """Return a kernel's positional and keyword arguments, with zeros in place of poison."""
    if spec.ranks:
        raise SpecError(
            "ranks: received a test of several ranks; accepted: a test without ranks"
        )
    call = make_call(spec, case)
    zeros = tuple(map(np.zeros_like, call.outputs))
    args, keywords = call._replace(outputs=zeros).arguments()
    return list(args), keywords


def run_kernel(backend: Backend, call: KernelCall) -> Outcome:
    """Run a kernel. A call that would end the test quietly, such as ``pytest.skip``, is a crash."""
    try:
        outcome: Outcome = within_limits(lambda: backend.run(call), call)
        return outcome
    except CaseLimitError as error:
        return Crashed(error)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # Skipped and Failed of pytest, SystemExit
        return Crashed(error)
