"""A top-2 router in the current dialect, correct and with planted bugs, and its reference."""

import numpy as np

from difftest.simulator.entry.install import embedded

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

RIGHT, LEAST, TWICE, NEXT, SWAPPED, UNSCALED = (
    "right",
    "least instead of second",
    "first twice",
    "next expert",
    "swapped weights",
    "weights of other logits",
)
BUGS = (LEAST, TWICE, NEXT, SWAPPED, UNSCALED)


def router_of(bug=RIGHT):
    """A kernel: tokens [D, T] and gate [D, E] give 2 experts a token, and their weights."""

    @nki.jit
    def router(tokens, gate):
        depth, count = tokens.shape
        experts = gate.shape[1]
        places = nl.ndarray((count, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
        weights = nl.ndarray((count, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        moving = nl.ndarray((depth, experts), dtype=gate.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=moving, src=gate)
        stationary = nl.ndarray((depth, count), dtype=tokens.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=stationary, src=tokens)
        product = nl.ndarray((count, experts), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
        logits = nl.ndarray((count, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=logits, src=product)

        largest = nl.ndarray((count, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=largest, src=logits)
        if bug == TWICE:
            nisa.tensor_copy(dst=largest[:, 1:2], src=largest[:, 0:1])
        found = nl.ndarray((count, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.nc_find_index8(dst=found, data=logits, vals=largest)
        if bug == LEAST:
            nisa.tensor_copy(dst=found[:, 1:2], src=found[:, 2:3])
        if bug == TWICE:
            nisa.tensor_copy(dst=found[:, 1:2], src=found[:, 0:1])
        if bug == NEXT:
            nisa.tensor_scalar(dst=found, data=found, op0=nl.add, operand0=1)

        # softmax over the two largest: exp(l - l0) / sum
        top = largest[:, 0:2]
        factor = -1.0
        if bug == UNSCALED:
            top = largest[:, 1:3]
        shift = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=shift, data=largest[:, 0:1], op0=nl.multiply, operand0=factor
        )
        powers = nl.ndarray((count, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=top, bias=shift)
        total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)
        inverse = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        made = nl.ndarray((count, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=made, data=powers, op0=nl.multiply, operand0=inverse)
        if bug == SWAPPED:
            nisa.dma_copy(dst=weights[:, 0:1], src=made[:, 1:2])
            nisa.dma_copy(dst=weights[:, 1:2], src=made[:, 0:1])
        else:
            nisa.dma_copy(dst=weights, src=made)
        nisa.dma_copy(dst=places, src=found[:, 0:2])
        return places, weights

    return router


def routed(tokens, gate):
    """The two largest logits' experts, the first of equal ones first, and their softmax."""
    logits = tokens.astype(np.float64).T @ gate.astype(np.float64)
    places = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    largest = np.take_along_axis(logits, places, axis=1)
    powers = np.exp(largest - largest[:, :1])
    return places.astype(np.uint32), powers / powers.sum(axis=1, keepdims=True)
