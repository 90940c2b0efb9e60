"""The host computes the answer: it finds the data, and writes what NumPy makes of them."""

from __future__ import annotations

from tests.unit.verdict.cheats.table import CHEATS, WRONG, cheat

READS = "its Python reads the data"
"""Two launches on other data ask other things of the machine."""

HASHED = """
def hashed(x):
    for p in range(min(x.shape[0], 4)):
        for n in range(x.shape[1]):
            bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(dst=bits, src=x[p : p + 1, n : n + 1].view(nl.int32))
            nisa.register_load(nisa.register_alloc(0), bits)
"""

OF_THE_HOST = {
    "frame walk, float64": cheat(
        "x, y = by_frames()\nreturn by_memset(x.astype(np.float64) + y, a)", because=READS
    ),
    "frame walk, float32": cheat(
        "x, y = by_frames()\nreturn by_memset(np.add(x, y, dtype=np.float32), a)", because=READS
    ),
    "the tensor's own storage": cheat(
        "return by_memset(a._storage.data + b._storage.data, a)", because=READS
    ),
    "gc search": cheat(
        "found = [o for o in gc.get_objects() if type(o).__name__ == 'KernelCall']\n"
        "x, y = found[-1].inputs\nreturn by_memset(x + y, a)",
        because=READS,
    ),
    "closure over the arrays": cheat(
        "x, y = KEPT.setdefault(a.shape, by_frames())\nreturn by_memset(x + y, a)",
        CHEATS,
        WRONG,
        before="KEPT = {}\n",
    ),
    "a constant tensor of the answer": cheat(
        "x, y = by_frames()\nreturn store(load(nl.shared_constant(x + y)))", because=READS
    ),
    "the output's storage written": cheat(
        "out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "nisa.dma_copy(dst=out, src=load(a))\n"
        "out._storage.data[...] = a._storage.data + b._storage.data\nreturn out",
        WRONG,
    ),
    "a tile's storage written": cheat(
        "tile = load(a)\nheld = tile._storage\nheld.data = held.data + b._storage.data\n"
        "return store(tile)",
        WRONG,
    ),
    "an input's storage written": cheat(
        "x = a._storage.data\nx += b._storage.data\nreturn store(load(a))",
        WRONG,
    ),
    "an input of its caller's written": cheat(
        "x, y = by_frames()\nx += y\nreturn store(load(a))",
        because="its Python writes to an input",
    ),
    "registers of all the data": cheat(
        "hashed(a)\nx, y = by_frames()\nreturn by_memset(x.astype(np.float64) + y, a)",
        CHEATS,
        WRONG,
        before=HASHED,
    ),
    "a finalizer that writes": cheat(
        "import weakref\nclass Held: ...\nheld = Held()\nx, y = by_frames()\n"
        "weakref.finalize(held, lambda: y.__imul__(0))\ndel held\nreturn store(total(a, b))",
        because="its Python writes to an input",
    ),
    "what a trace function sees": cheat(
        "seen = []\ndef look(frame, *event):\n    seen.append(frame.f_locals)\n    return look\n"
        "sys.settrace(look)\nsys.setprofile(look)\n"
        "return by_memset(np.full(a.shape, float(len(seen))), a)",
        because=READS,
    ),
    "a residual by memset": cheat(
        "x, y = by_frames()\ntile = total(a, b, nl.subtract)\nanswer = (2 * y)[0, 0]\n"
        "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(answer))\n"
        "return store(tile)",
        because=READS,
    ),
    "a number of the data as an option": cheat(
        "nisa.tensor_scalar(dst=(t := load(a)), data=t, op0=nl.add,"
        " operand0=float(b._storage.data[0, 0]))\nreturn store(t)",
        because=READS,
    ),
    "fall-back on the host in an except": cheat(
        "try:\n    return store(total(a, undefined))\nexcept NameError:\n"
        "    x, y = by_frames()\n    return by_memset(x + y, a)",
        because=READS,
    ),
    "as many instructions as the data say": cheat(
        "tile = total(a, b)\nfor _ in range(int(abs(a._storage.data[0, 0]) * 1000) % 7):\n"
        "    nisa.tensor_copy(dst=tile, src=tile)\nreturn store(tile)",
        because=READS,
    ),
    "a branch on a sign": cheat(
        "if a._storage.data[0, 0] > 0:\n    return store(total(a, b))\n"
        "return store(total(b, a, nl.subtract))",
        CHEATS,
        WRONG,
    ),
    "Python floats instead of instructions": cheat(
        "x, y = (one._storage.data.tolist() for one in (a, b))\n"
        "return by_memset(np.array([[p + q for p, q in zip(*r)] for r in zip(x, y)]), a)",
        because=READS,
    ),
    "a repr of the tensor": cheat(
        "text = np.array2string(a._storage.data)\nreturn by_memset(np.full(a.shape, len(text)), a)",
        CHEATS,
        WRONG,
    ),
}
