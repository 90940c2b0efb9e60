"""Find which checker reports each documented error: linter, simulator or detector (README.md).

``python -m conformance.errors [--write]``. A kernel of our own breaks each rule of the classic page
of errors (``nki.errors.rst`` at v2.26.0); of the rules that today's pages state, the page of the
linter's rule has one. Neither needs a checkout.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from difftest.analysis.inspection import Inspector
from difftest.simulator import MACHINES, NkiError, launch
from difftest.simulator.launch_listeners import LaunchRecord, listening
from difftest.testing.host.installation import embedded_with_predictions
from difftest.tools.lint.check import lint_source, lint_trace, rules
from difftest.tools.lint.rule import LAST_CLASSIC, SDKS, TODAYS, Confidence
from difftest.tools.lint.source import Source

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "generated" / "errors.md"
HEAD = """
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np


@nki.jit
def inner(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

"""
OUT = "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)"

BROKEN = {
    "err_1d_arange_not_supported": "i = nl.arange(64); nl.store(out, nl.exp(nl.load(x)[i, 0]))",
    "err_activation_bias_invalid_type": """
tile = nl.load(x)
bias = nisa.memset((128, 1), 1, dtype=nl.int8)
nl.store(out, nisa.activation(op=nl.exp, data=tile, bias=bias))
""",
    "err_activation_scale_invalid_type": """
scale = nisa.memset((128, 1), 1.5, dtype=nl.float16)
nl.store(out, nisa.activation(op=nl.exp, data=nl.load(x), scale=scale))
""",
    "err_activation_scale_scalar_or_vector": """
scale = nisa.memset((128, 64), 1.5, dtype=nl.float32)
nl.store(out, nisa.activation(op=nl.exp, data=nl.load(x), scale=scale))
""",
    "err_ambiguous_tensor_truth_value": "tile = nl.load(x); nl.store(out, not tile)",
    "err_annotation_shape_mismatch": """
tile: nt.tensor[128, 512] = nl.zeros((nl.par_dim(128), 64), dtype=x.dtype)
nl.store(out, tile)
""",
    "err_bias_tensor_must_be_specified_in_allocation": """
tile = nl.ndarray((nl.par_dim(128), 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
tile[...] = nl.load(x)
tile[...] = nisa.activation(np.exp, data=tile[...])
nl.store(out, tile)
""",
    "err_cannot_assign_to_index": "_, i = nl.mgrid[0:1, 0:8]; i[0, 5] = 1",
    "err_cannot_update_immutable_parameter": "nl.store(x, nl.load(x)); return x",
    "err_control_flow_condition_depending_on_arange": """
i = nl.arange(64)[None, :]
if i > 2:
    nl.store(out, nl.load(x))
""",
    "err_copy_dynamic_indirect_indices_not_natively_supported": """
tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.uint32)
i, j = nl.mgrid[0:128, 0:64]
tile[i, j] = nl.load(x)[rows[i, 0], j]
nl.store(out, tile)
""",
    "err_dynamic_control_flow_not_supported": """
tile = nl.load(x)
if tile:
    nl.store(out, tile)
""",
    "err_exceed_max_supported_dimension": """
nl.transpose(nl.zeros((64, 32, 2), dtype=nl.float32, buffer=nl.sbuf))
nl.store(out, nl.load(x))
""",
    "err_failed_to_infer_tile_from_local_tensor": """
nl.add(nl.zeros((4, nl.par_dim(8), 8), dtype=nl.float32, buffer=nl.sbuf), 32)
nl.store(out, nl.load(x))
""",
    "err_hbm_tensor_with_init_value_not_supported": """
nl.full((3, 128, 512), 1.0, dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(out, nl.load(x))
""",
    "err_indirect_indices_are_not_supported_with_nki_api": """
rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.uint32)
nl.load_transpose2d(x[rows])
nl.store(out, nl.load(x))
""",
    "err_indirect_indices_free_dim": """
columns = nisa.iota(nl.arange(64)[:, None], dtype=nl.uint32)
i = nl.arange(64)[:, None]
nl.store(out[0:64, 0:1], nl.load(x[i, columns[i, 0]]))
""",
    "err_leading_dimension_of_tensor_must_be_partition": """
tiles = nl.ndarray((2, nl.par_dim(64), 64), dtype=x.dtype, buffer=nl.sbuf)
nl.store(out, nl.load(x))
""",
    "err_local_variable_used_out_of_scope": """
for i in range(4):
    if i < 2:
        tile = nl.load(x)
    else:
        tile = nl.load(x)
    nl.store(out, tile)
""",
    "err_mutable_parameter_not_returned": "nl.store(out, nl.load(x))",
    "err_nested_kernel_with_spmd_grid": "inner[4, 4](x); nl.store(out, nl.load(x))",
    "err_nki_api_outside_of_nki_kernel": "nl.store(out, nl.load(x))",
    "err_num_partition_exceed_arch_limit": """
nl.zeros((256, 1024), dtype=nl.float32, buffer=nl.sbuf)
nl.store(out, nl.load(x))
""",
    "err_num_partition_mismatch": """
row = nl.zeros((1, 64), dtype=nl.float32, buffer=nl.sbuf)
nl.store(out, nisa.tensor_tensor(nl.load(x), row, op=nl.add))
""",
    "err_shared_hbm_must_in_kernel_level": """
for i in range(2):
    other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(out, nl.load(x))
""",
    "err_size_of_dimension_exceed_arch_limit": """
nl.transpose(nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf))
nl.store(out, nl.load(x))
""",
    "err_store_dst_shape_smaller_than_other_shape": """
column = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
column[...] = nl.load(x)
nl.store(out, nl.load(x))
""",
    "err_tensor_access_out_of_bound": """
for i in nl.affine_range(2):
    row, column = nl.mgrid[0:128, 0:48]
    nl.store(out[row, i * 48 + column], nl.load(x[row, i * 48 + column]))
""",
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported": """
nl.full((nl.par_dim(128), 512), 1.0, dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
nl.store(out, nl.load(x))
""",
    "err_tensor_output_not_written_to": """
for i in nl.affine_range(128 // 129):
    nl.store(out, nl.load(x))
""",
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel": """
tile = nl.ndarray((nl.par_dim(64), 64), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
turned = nl.ndarray((nl.par_dim(64), 64), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
tile[...] = nl.load(x[0:64, 0:64])
turned[...] = nisa.nc_transpose(tile[...])
nl.store(out[0:64, 0:64], turned)
nl.store(out[64:128, 0:64], turned)
""",
    "err_unexpected_output_dependencies": """
tiles = nl.ndarray((4, nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.affine_range(4):
    tiles[0] = nl.load(x)
nl.store(out, tiles[0])
""",
    "err_unsupported_expression_in_mask": """
for i in range(8):
    nl.store(out, nl.load(x), mask=(nl.arange(128)[:, None] % 4) < 2)
""",
    "err_unsupported_memory": "nl.store(out, nl.exp(x))",
    "err_unsupported_mixing_basic_advanced_tensor_indexing": """
i = nl.arange(4)[:, None]
nl.store(out, nl.exp(nl.load(x)[i, :]))
""",
    "err_while_loop_requires_unconditional_entry": """
count = nl.load(x)
while count:
    nl.store(out, count)
""",
}
SPELLED = {"err_mutable_parameter_not_returned": "x: nt.mutable_tensor"}
BEFORE = {
    "err_nki_api_outside_of_nki_kernel": "ZEROS = nl.zeros((128, 64), dtype=nl.float32)\n"
}


class Told(NamedTuple):
    """Return the checkers that report a wrong kernel: lint rules, its run's error, detectors."""

    rules: tuple[str, ...]
    run: str
    detectors: tuple[str, ...]


def kernels() -> Iterator[tuple[str, str, str]]:
    """Each documented error: its name, the dialect, a kernel that has it."""
    for name, body in BROKEN.items():
        lines = [OUT, *body.strip().splitlines(), "return out"]
        parameter = SPELLED.get(name, "x")
        text = "".join(f"    {line}\n" for line in lines)
        before = BEFORE.get(name, "")
        yield (
            name,
            "classic",
            f"{HEAD}{before}\n\n@nki.jit\ndef kernel({parameter}):\n{text}",
        )
    for id, rule in rules().items():
        is_todays = rule.frontends <= TODAYS and not rule.reads_traces
        if is_todays and rule.confidence is Confidence.DOCUMENTED:
            [wrong, *_] = re.findall(
                r"^```python\n(.*?)^```$", rule.page, re.DOTALL | re.MULTILINE
            )
            yield id, "current", wrong


def told(name: str, dialect: str, text: str, folder: Path) -> Told:
    """Read a kernel, and run it with the detectors."""
    file = folder / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    sdk = LAST_CLASSIC
    if dialect != "classic":
        named = re.search(r"For SDK (2\.\d+)", rules()[name].page)
        holding = [
            one for one in SDKS.values() if rules()[name].holds(one, None) and one.level
        ]
        sdk = SDKS[named[1]] if named else holding[-1]
    source = Source(file, text)
    ids = {
        one.id
        for one in lint_source(source, sdk)
        if dialect == "classic" or one.id == name
    }
    inspector = Inspector()
    traces: list[str] = []

    def look(testimony: LaunchRecord) -> None:
        inspector(testimony)
        traces.extend(one.id for one in lint_trace(testimony.trace, sdk))

    with listening(look):
        run = _refusal(file)
    found = {one.id for one in inspector.findings} | set(traces)
    return Told(tuple(sorted(ids)), run, tuple(sorted(found)))


def _refusal(file: Path) -> str:
    """Return the name of the simulator's error or warning; empty if the kernel runs."""
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with embedded_with_predictions():
                spec.loader.exec_module(module)
            launch(
                module.kernel,
                [np.ones((128, 64), np.float32)],
                machine=MACHINES["trn2"],
            )
        except (NkiError, Warning, TypeError, ValueError) as error:
            return type(error).__name__
    return ""


def row(name: str, dialect: str, who: Told) -> str:
    """One row of the table."""
    ids = ", ".join(who.rules)
    return f"| {name} | {dialect} | {ids} | {who.run} | {', '.join(who.detectors)} |"


def main(arguments: Sequence[str]) -> int:
    """Print the table, or put it on its page."""
    with TemporaryDirectory() as folder:
        rows = [
            (name, told(name, *rest, Path(folder)), rest[0])
            for name, *rest in kernels()
        ]
    nobody = sum(not any(who) for _, who, _ in rows)
    head = """# AWS's documented errors

This table shows which program reports each documented error: the linter, the simulator's run by an
error or a warning, or a detector. `python -m conformance.errors --write` makes it.

- Classic errors are on AWS's page (v2.26.0). A kernel of this project breaks each one.
- Errors of the current dialect are on AWS's pages. The kernel is on the page of the lint rule.

| error | dialect | `difftest lint` at the line | the run | `difftest check` |
|---|---|---|---|---|
"""
    text = head + "\n".join(row(name, dialect, who) for name, who, dialect in rows)
    text += f"\n\n{len(rows)} errors; {nobody} of them are not reported.\n"
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
