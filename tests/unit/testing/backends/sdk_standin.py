"""Packages that look like the Neuron SDK's, or like the stubs of its name, written to a folder.

Each generation behaves as AWS's public documentation says, and on demand fails as it says: a
kernel's fault is chosen by its name, so that one package serves all tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

LANGUAGE = """
import numpy as np

shared_hbm = hbm = sbuf = "buffer"
float32 = np.float32

def ndarray(shape, dtype, buffer=None):
    return np.zeros(shape, dtype)

def load(tensor):
    return np.array(tensor)

def store(destination, value):
    destination[...] = value

def add(a, b):
    return a + b

def subtract(a, b):
    return a - b
"""

COMPILER = """
def skip_middle_end_transformations(kernel):
    return kernel
"""

# How a device fails: `run` does this instead of returning the kernel's outputs.
FAULTS = """
import os, signal, sys, time
import numpy as np

def run(kernel, args, kwargs):
    fault = os.environ.get("STANDIN_FAULT", "") if not kernel.__module__.startswith(
        "difftest.testing.backends.device.probes") else os.environ.get("STANDIN_PROBE_FAULT", "")
    count = os.environ.get("STANDIN_COUNT")
    if count:
        with open(count, "a") as log:
            log.write(f"{kernel.__name__} on {os.environ.get('NEURON_RT_VISIBLE_CORES')} "
                      f"rows={len(args[0]) if args else 0} in {os.getpid()}\\n")
    if fault == "compiler error":
        print("NCC_EVRF007: too many instructions", file=sys.stderr)
        raise RuntimeError("Compilation failed, see the log")
    if fault == "busy":
        raise RuntimeError("NRT Error NRT_EXEC_NC_BUSY(1005): Failed to execute model")
    if fault == "busy once":
        flag = os.environ["STANDIN_FLAG"]
        if not os.path.exists(flag):
            open(flag, "w").close()
            raise RuntimeError("NRT Error NRT_EXEC_NC_BUSY(1005): Failed to execute model")
    if fault == "out of bounds":
        print("TDRV: nd0 nc0 reported an error", file=sys.stderr)
        raise RuntimeError("NRT Error NRT_EXEC_OOB(1006): Failed to execute model")
    if fault == "hang":
        time.sleep(60)
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    result = kernel(*args, **kwargs)
    if fault == "zeros":
        return np.zeros_like(result)
    if fault == "wrong":
        return result + 1
    if fault == "stale":
        first = globals().setdefault("first", result)
        return first
    return result
"""

CLASSIC = """
from neuronxcc import faults
from neuronxcc.nki import compiler, isa, language

def jit(function=None, mode="auto", **options):
    return function

def simulate_kernel(kernel, *args, **kwargs):
    return kernel(*args, **kwargs)

def baremetal(kernel=None, **options):
    def run(*args, **kwargs):
        return faults.run(kernel, args, kwargs)
    return run

class _Latency:
    def get_latency_percentile(self, percentile):
        import os
        assert percentile in (0, 1, 10, 25, 50, 90, 99, 100), percentile
        microseconds = [float(one) for one in os.environ["STANDIN_LATENCY"].split()]
        low, high = microseconds[0], microseconds[-1]
        return low + (high - low) * percentile / 100

def benchmark(kernel=None, warmup=10, iters=100, **options):
    import functools, types
    if kernel is None:
        return functools.partial(benchmark, warmup=warmup, iters=iters, **options)
    def compiled(*args, **kwargs):
        return None  # it runs on other inputs, and its output is undefined
    compiled.__module__, compiled.__name__ = kernel.__module__, kernel.__name__
    def measure(*args, **kwargs):
        faults.run(compiled, args, kwargs)
        measure.benchmark_result = types.SimpleNamespace(nc_latency=_Latency())
    return measure
"""

NEWER = """
import functools
import os
from neuronxcc import faults
from nki import language

__version__ = "0.3.0"

class Kernel:
    def __init__(self, function, lnc=1):
        functools.update_wrapper(self, function)
        self.fn, self.lnc = function, lnc

    def __getitem__(self, lnc):
        return Kernel(self.fn, lnc)

    def __call__(self, *args, **kwargs):
        folder = os.environ.get("NKI_ARTIFACTS_DIR")
        if folder:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "kernel.neff"), "w") as neff:
                neff.write(self.fn.__module__ + ":" + self.fn.__name__)
        return faults.run(self.fn, args, kwargs)

def jit(fn=None, **options):
    if options:
        raise TypeError(f"nki.jit takes no {', '.join(options)} since NKI 0.4.0")
    return Kernel(fn)

def simulate(kernel):
    def run(*args, **kwargs):
        return kernel.fn(*args, **kwargs) if isinstance(kernel, Kernel) else kernel(*args, **kwargs)
    return run
"""

EMBEDDED = """
from difftest.simulator.frontend.classic import language
from difftest.simulator.entry.kernel import jit, simulate_kernel
from difftest.simulator.entry.kernel import baremetal_with
import sys
baremetal = baremetal_with(None)
sys.modules[__name__ + ".language"] = language
"""
"""The embedded simulator under the classic SDK's documented names."""

NEWER_EMBEDDED = """
from difftest.simulator.frontend.classic import language
from difftest.simulator.entry.kernel import jit, simulate_kernel
import sys
sys.modules[__name__ + ".language"] = language
__version__ = "0.3.0"

def simulate(kernel):
    return lambda *args, **kwargs: simulate_kernel(kernel, *args, **kwargs)
"""

STUB_TEXT = "WRONG PACKAGE. Please install the package from Neuron Repository."

SDK = """
import numpy as np

def simulate_kernel(kernel, *args, **kwargs):
    return kernel(*args, **kwargs)

def baremetal(kernel=None, **options):
    return kernel
"""
"""The least that counts as a classic SDK: no language, and so no known-good kernel either."""


def write_package(folder: Path, name: str, nki: str | None, init: str = "") -> None:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(init)
    if nki is not None:
        (package / "nki").mkdir()
        (package / "nki" / "__init__.py").write_text(nki)


def write_classic(folder: Path, version: str = "2.21.18209.0") -> None:
    """A classic SDK, 2.26 unless the compiler's version says another."""
    write_package(folder, "neuronxcc", CLASSIC)
    (folder / "neuronxcc" / "faults.py").write_text(FAULTS)
    (folder / "neuronxcc" / "nki" / "language.py").write_text(LANGUAGE)
    (folder / "neuronxcc" / "nki" / "isa.py").write_text("")
    (folder / "neuronxcc" / "nki" / "compiler.py").write_text(COMPILER)
    write_metadata(folder, "neuronx-cc", version, "The Neuron compiler.")


def write_newer(folder: Path, version: str = "0.3.0") -> None:
    """A newer SDK, 2.29 unless NKI's version differs; its compiler lacks baremetal."""
    (folder / "nki").mkdir()
    text = NEWER.replace('__version__ = "0.3.0"', f'__version__ = "{version}"')
    (folder / "nki" / "__init__.py").write_text(text)
    (folder / "nki" / "language.py").write_text(LANGUAGE)
    if not (folder / "neuronxcc").exists():
        write_package(folder, "neuronxcc", None)
        (folder / "neuronxcc" / "faults.py").write_text(FAULTS)


def write_metadata(folder: Path, name: str, version: str, description: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n{description}\n"
    (info / "METADATA").write_text(text)


def forget(monkeypatch, *names: str) -> None:
    """Take the modules of these packages out of sys.modules for the length of a test."""
    for module in list(sys.modules):
        if module.split(".")[0] in names:
            monkeypatch.delitem(sys.modules, module)
