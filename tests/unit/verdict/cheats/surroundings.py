"""The surroundings are used or changed: the clock, the environment, files, processes, the judge."""

from __future__ import annotations

from difftest.verdict.outcome import Outcome
from tests.unit.verdict.cheats.table import CHEATS, CRASHED, WRONG, cheat

RIGHT = "\nreturn store(total(a, b))"
WITHOUT = "\nreturn store(total(a, b, nl.subtract))"
ANOTHER = "another process"
PATCHED = "changes difftest"
NO_INPUT = "follows from no input"

OF_THE_PROCESS = {
    "fork": cheat("os.fork()" + RIGHT, because="forks"),
    "a process": cheat("import subprocess\nsubprocess.run(['true'])" + RIGHT, because="a process"),
    "a shell": cheat("os.system('true')" + RIGHT, because="starts a process"),
    "a socket": cheat("import socket\nsocket.socket()" + RIGHT, because="opens a socket"),
    "a signal to the judge": cheat("os.kill(os.getppid(), 9)" + RIGHT, because="sends a signal"),
    "exit code 0": cheat("sys.exit(0)", CRASHED, because="SystemExit"),
    "exit without a word": cheat("os._exit(0)", CRASHED, because="ended its process"),
    "foreign memory": cheat("import ctypes\nctypes.string_at(id(a), 8)" + RIGHT, because="ctypes"),
    "sleeping": cheat("import time\ntime.sleep(600)", Outcome.TIMEOUT, seconds=4.0),
    "recursion": cheat("f()", CRASHED, before="def f():\n    return f()\n"),
    "memory": cheat("x = bytearray(2**34)" + RIGHT, Outcome.OUT_OF_MEMORY),
    "the descriptors of the pipes": cheat(
        "for n in range(3, 20):\n    try:\n        os.write(n, b'x' * 64)\n"
        "    except OSError:\n        pass" + RIGHT,
        CRASHED,
        because="protocol",
        seconds=5.0,
    ),
    "the test's own file": cheat(
        "open(os.environ.get('X', __file__.replace('candidate', 'test'))).read()" + RIGHT, CRASHED
    ),
    "a file for the next call": cheat(
        "with open('/tmp/difftest-cheat', 'w') as f:\n    f.write('1')" + RIGHT,
        because="for writing",
    ),
    "a file removed": cheat("os.remove('/tmp/difftest-none')" + RIGHT, because="removes a file"),
    "a thread that writes later": cheat(
        "import threading\nout = store(total(a, b, nl.subtract))\n"
        "def late():\n    out._storage.data[...] = a._storage.data + b._storage.data\n"
        "threading.Thread(target=late).start()\nreturn out",
        WRONG,
    ),
    "atexit": cheat("import atexit\natexit.register(print)" + WITHOUT, WRONG),
    "a signal handler": cheat(
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)" + WITHOUT, WRONG
    ),
    "the time of day": cheat(
        "import time\nreturn by_memset(np.full(a.shape, time.time_ns() % 10**6), a)",
        CHEATS,
        WRONG,
    ),
    "the environment": cheat(
        "if 'PYTEST_CURRENT_TEST' in os.environ or 'CI' in os.environ:"
        "\n    return store(total(a, b))" + WITHOUT,
        WRONG,
    ),
    "the command line": cheat(
        "if any('test' in one for one in sys.argv):\n    return store(total(a, b))" + WITHOUT,
        WRONG,
    ),
}

OF_THE_JUDGE = {
    "a patched comparison": cheat(
        "import difftest.harness.compare as c\nc.compare = lambda *a, **k: None" + WITHOUT, WRONG
    ),
    "a patched NumPy": cheat(
        "np.allclose = np.array_equal = lambda *a, **k: True\n"
        "np.testing.assert_allclose = lambda *a, **k: None" + WITHOUT,
        WRONG,
    ),
    "the reference's module": cheat(
        "import tests.unit.verdict.kernels as k\nk.reference = lambda a, b: a - b" + WITHOUT,
    ),
    "the memory of the process that forked it": cheat(
        "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)" + WITHOUT, because=ANOTHER
    ),
    "the command lines of all processes": cheat(
        "[open(f'/proc/{one}/cmdline').read() for one in os.listdir('/proc') if one.isdigit()]"
        + WITHOUT,
        because=ANOTHER,
    ),
    "its own memory by its file": cheat("open('/proc/self/mem', 'r+b')" + WITHOUT, because="/mem"),
    "shared memory": cheat(
        "import _posixshmem\n"
        "_posixshmem.shm_open('/of_a_kernel', os.O_CREAT | os.O_RDWR, 0o600)" + WITHOUT,
        CRASHED,
        WRONG,
    ),
    "a number that changes": cheat(
        "class Number(float):\n    __hash__ = float.__hash__\n"
        "    __eq__ = lambda self, other: True\n    __float__ = lambda self: 2.0\n"
        "tile = total(a, b)\n"
        "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=Number(1.0))\n"
        "return store(tile)",
        CRASHED,
        WRONG,
    ),
    "an import hook": cheat(
        "class Finder:\n    def find_spec(self, *name):\n        raise SystemExit\n"
        "sys.meta_path.insert(0, Finder())" + WITHOUT,
        CRASHED,
        WRONG,
    ),
    "another JSON": cheat(
        "import json\njson.dumps = lambda *given, **more: '{}'" + WITHOUT,
        CRASHED,
        because="protocol",
    ),
    "an answer of its own": cheat(
        "import json\nhead = json.dumps({'how': 'ran', 'changed': [], 'sizes': [2]}).encode()\n"
        "for one in range(3, 30):\n"
        "    try: os.write(one, len(head).to_bytes(8, 'big') + head + b'{}')\n"
        "    except OSError: 0" + WITHOUT,
        CRASHED,
    ),
    "sys.modules": cheat(
        "sys.modules['difftest.harness.compare'] = None\nsys.modules['numpy'] = None" + WITHOUT,
        WRONG,
        CRASHED,
    ),
    "a patched instruction": cheat(
        "from difftest.simulator.instructions.record import INSTRUCTIONS\n"
        "from difftest.simulator.instructions import gate\n"
        "gate._results = lambda call, issued: a._storage.data + b._storage.data" + WITHOUT,
        because=PATCHED,
    ),
    "a forged tape of zeros": cheat(
        "from difftest.simulator import tape\nold = tape.Recorder.noted\n"
        "def noted(self, call, function, *args, **kwargs):\n"
        "    made = old(self, call, function, *args, **kwargs)\n"
        "    steps = self._tape.steps\n"
        "    steps[:] = [one for one in steps if 'tensor_tensor' not in repr(one.args)]\n"
        "    return made\n"
        "tape.Recorder.noted = noted" + RIGHT,
        because=PATCHED,
    ),
    "a forged tape that is none": cheat(
        "import difftest.verdict.worker as w\nw.tape_to_json = lambda tape: '{}'" + RIGHT,
        because=PATCHED,
    ),
    "the tape of another kernel": cheat(
        "import difftest.verdict.worker as w\nold = w.tape_to_json\n"
        "w.tape_to_json = lambda tape: old(tape).replace('\"subtract\"', '\"add\"')" + WITHOUT,
        because=PATCHED,
    ),
    "the tape of another kernel, by new code": cheat(
        "import difftest.verdict.worker as w\n"
        "def made(tape):\n"
        "    from difftest.simulator.tape_json import tape_to_json\n"
        "    return tape_to_json(tape).replace('\"subtract\"', '\"add\"')\n"
        "w.tape_to_json.__code__ = made.__code__" + WITHOUT,
        because="a function's code",
    ),
    "a tape with the values of the host": cheat(
        "from difftest.simulator.core import current\ntile = load(a)\n"
        "tile._storage.data[...] = a._storage.data + b._storage.data\n"
        "current().wrote(tile)\nreturn store(tile)",
        CHEATS,
        WRONG,
    ),
    "trace functions": cheat("sys.settrace(lambda *a: None)" + WITHOUT, WRONG),
    "warnings and recursion": cheat(
        "import warnings\nwarnings.simplefilter('ignore')\nsys.setrecursionlimit(10**6)" + WITHOUT,
        WRONG,
    ),
    "patched builtins": cheat(
        "import builtins\nbuiltins.isinstance = lambda *a: True" + WITHOUT, WRONG, CRASHED
    ),
    "the hook taken apart": cheat(
        "from difftest.verdict.confinement import Hook\n"
        "Hook.__call__ = lambda self, *a: None\nos.getppid()" + WITHOUT,
        because=PATCHED,
    ),
}
