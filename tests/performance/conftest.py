"""The hardware stage runs when it is named, alone, and with a device."""

from pathlib import Path

import pytest

from difftest.testing.session.options import SESSION

HERE = Path(__file__).parent
LINES = pytest.StashKey[list[str]]()


def pytest_ignore_collect(collection_path, config):
    """Leave this folder out of a run of all tests."""
    return None if is_named(config) else True


def is_named(config):
    """Return whether the command line names this folder, or a test in it."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return any(one == HERE or HERE in one.parents for one in named)


def pytest_configure(config):
    """One core, and no other load."""
    if is_named(config) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("the hardware stage uses one core: run it without -n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Measure on a device, one thing at a time."""
    stage = [item for item in items if HERE in item.path.parents]
    if stage and len(stage) < len(items):
        raise pytest.UsageError(
            "the hardware stage runs alone: do not name other tests with it"
        )
    if stage and not config.stash[SESSION].request.device:
        raise pytest.UsageError("the hardware stage needs a device: --device")


@pytest.fixture
def report(request):
    """Shows a result at the end of the run, and puts its numbers into the JUnit report."""

    def add(result):
        request.config.stash.setdefault(LINES, []).extend(result.lines())
        properties = request.node.user_properties
        properties += [
            ("difftest_result", result.result),
            ("difftest_p99_us", result.p99_us),
        ]

    return add


def pytest_terminal_summary(terminalreporter, config):
    """Each result, with its measurement and its limit."""
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("latency thresholds")
        for line in lines:
            terminalreporter.write_line(line)
