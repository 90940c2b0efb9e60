"""A compiled kernel in the hands of nrtpy: the other environment's process, from this side.

See ``nrtpy_host.py`` for what runs there.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from difftest.backends.base import Array
from difftest.backends.device.worker import WorkerDiedError, WorkerHungError

HOST = Path(__file__).with_name("nrtpy_host.py")
_LIBRARIES = "/opt/aws/neuron/lib"
"""Where the runtime library lies, which nrtpy needs (AWS's page "Get started with nrtpy")."""
_TAIL_BYTES = 8000


class NrtpyError(Exception):
    """nrtpy, or the runtime under it, reported an error: its type and text."""


class LoadedNeff:
    """A NEFF on a core, in a process of nrtpy's environment.

    Parameters
    ----------
    python : the interpreter of that environment.
    environment : variables to add to this process's.
    timeout : seconds for each answer.

    Raises
    ------
    NrtpyError, WorkerHungError, WorkerDiedError, OSError : it could not be loaded.
    """

    def __init__(
        self,
        python: str,
        neff: Path,
        core: int,
        environment: Mapping[str, str],
        timeout: float,
    ) -> None:
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="difftest-nrtpy-")
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see close
        paths = [_LIBRARIES, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                # -u: the log is whole when it is read
                [python, "-u", str(HOST), str(neff), str(core)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **environment, "LD_LIBRARY_PATH": os.pathsep.join(paths)},
                bufsize=0,
            )
            ready = self._read()
        except BaseException:
            self.close()
            raise
        self.inputs: tuple[str, ...] = tuple(ready["inputs"])
        """The names of its input tensors."""

    def run(
        self, inputs: Mapping[str, Array], like: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
    ) -> tuple[Array, ...]:
        """The outputs for these inputs, in the shapes and dtypes of ``like``."""
        answer = self._ask({"do": "run", "folder": self._folder.name}, inputs)
        written = [np.load(path) for path in answer["outputs"]]
        if len(written) != len(like):
            raise NrtpyError(f"{len(written)} outputs came back, {len(like)} were expected")
        return tuple(
            data.view(dtype).reshape(shape)
            for data, (shape, dtype) in zip(written, like, strict=True)
        )

    def benchmark(
        self, inputs: Mapping[str, Array], *, warmup: int, iterations: int
    ) -> list[float]:
        """Time on the device of each execution, microseconds.

        They may be more than ``iterations``: a NEFF of several parts has an event for each.
        """
        answer = self._ask({"do": "benchmark", "warmup": warmup, "iterations": iterations}, inputs)
        return [duration * 1000 for duration in answer["durations_ms"]]

    def log(self) -> str:
        """What the process has written to stderr, the end of it."""
        end = self._log.seek(0, os.SEEK_END)
        start = max(0, end - _TAIL_BYTES)
        return os.pread(self._log.fileno(), end - start, start).decode(errors="replace").strip()

    def close(self) -> None:
        """End the process, which frees the core."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, request: dict[str, Any], inputs: Mapping[str, Array]) -> dict[str, Any]:
        if set(inputs) != set(self.inputs):
            raise NrtpyError(
                f"the NEFF's inputs are named {', '.join(self.inputs)}, the kernel's "
                f"{', '.join(inputs)}"
            )
        paths = {}
        for number, (name, array) in enumerate(inputs.items()):
            paths[name] = os.path.join(self._folder.name, f"input{number}.npy")
            np.save(paths[name], _plain(array))
        assert self._process is not None
        assert self._process.stdin is not None
        line = json.dumps({**request, "inputs": paths}) + "\n"
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            raise self._died() from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        """One answer, within the timeout."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline, received = time.monotonic() + self._timeout, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise WorkerHungError(self._timeout, self.log())
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    raise self._died()
                received += part
        answer: dict[str, Any] = json.loads(received)
        if "error" in answer:
            raise NrtpyError(answer["error"])
        return answer

    def _died(self) -> WorkerDiedError:
        assert self._process is not None
        return WorkerDiedError(self._process.wait(), self.log())


def _plain(array: Array) -> Array:
    """The array, or its bits as unsigned integers where plain NumPy does not know its dtype."""
    contiguous = np.ascontiguousarray(array)
    if contiguous.dtype.kind in "fiub":
        return contiguous
    return contiguous.view(f"u{contiguous.dtype.itemsize}")
