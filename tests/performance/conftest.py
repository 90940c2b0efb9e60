"""The hardware stage runs when it is named, alone, and with a device.

With ``--simulate`` it shows predictions and measures nothing: no test runs then, which the exit
code of pytest says.
"""

from pathlib import Path

import pytest

from difftest.backends.device.measurements import history_file
from difftest.backends.device.stage import NOT_MEASURED, run_threshold
from difftest.plugin.session import SESSION

HERE = Path(__file__).parent
LINES = pytest.StashKey[list[str]]()


def pytest_ignore_collect(collection_path, config):
    """Leave this folder out of a run of all tests."""
    return None if is_named(config) else True


def is_named(config):
    """Whether the command line names this folder, or something in it."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return any(one == HERE or HERE in one.parents for one in named)


def pytest_configure(config):
    """One core, and no other load."""
    if is_named(config) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("the hardware stage uses one core: run it without -n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Measure on a device, or predict; nothing else, and one thing at a time."""
    stage = [item for item in items if HERE in item.path.parents]
    if not stage:
        return
    request = config.stash[SESSION].request
    if len(stage) < len(items):
        raise pytest.UsageError("the hardware stage runs alone: name no other tests beside it")
    if request.device:
        return
    if request.simulate is None:
        raise pytest.UsageError(
            "the hardware stage needs a device: --device; --simulate shows predictions"
        )
    config.stash[LINES] = predictions(stage)
    config.hook.pytest_deselected(items=stage)
    items[:] = []


def predictions(items):
    """What the timing model says of each selected threshold; none of it is a result."""
    lines = []
    for item in items:
        threshold, load = item.callspec.params["threshold"], item.module.load_of
        lines += run_threshold(threshold, load(threshold), None).lines()
    return [*lines, f"{NOT_MEASURED}: these are predictions of the timing model"]


@pytest.fixture
def report(request):
    """Shows a result at the end of the run, and puts its numbers into the JUnit report."""

    def add(result):
        request.config.stash.setdefault(LINES, []).extend(result.lines())
        properties = request.node.user_properties
        properties.append(("difftest_result", result.result))
        for name in ("measured", "predicted"):
            numbers = result.to_json()[name]
            properties.append((f"difftest_{name}_p99_us", numbers and numbers["p99_us"]))

    return add


def pytest_terminal_summary(terminalreporter, config):
    """Each result with what was measured, predicted and demanded."""
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("latency thresholds")
        for line in lines:
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"history: {history_file()}")
