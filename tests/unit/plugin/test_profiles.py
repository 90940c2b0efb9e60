import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader

from difftest.plugin.startup import _FastFinder

SCRIPT = """
import os
from hypothesis import Phase, settings
from difftest.plugin.profiles import usual_profile
from difftest.testing.harness.profiles import default_profile
before = settings.default
for environment in ("", "true"):
    os.environ["CI"] = environment
    with default_profile(usual_profile(device=False)):
        loaded = settings.default
        for name in ("quick", "ci", "nightly", "device"):
            profile = settings.get_profile(name)
            assert profile.deadline is None and profile.print_blob, name
            assert Phase.explain not in profile.phases and Phase.shrink in profile.phases, name
        print(loaded.max_examples, loaded.derandomize, loaded.database is None)
    assert settings.default == before
print(settings.get_profile("nightly").max_examples)
with default_profile(usual_profile(device=True)):
    print(settings.default.max_examples, settings.default.database is None)
    settings.load_profile("nightly")
assert settings.default.max_examples == 2000, "whoever loads another profile keeps it"
import json, sys
from hypothesis.internal.conjecture import providers
import difftest.testing.backends.embedded, difftest.plugin.failure_output
import difftest.tools.scale.regressions
print({"click", "rich", "difftest.simulator.tape", "difftest.timing"} & {*sys.modules})
print(id(json) in getattr(providers, "_seen_modules", {id(json)}))
"""


def test_quick_is_the_default_and_ci_where_the_environment_says_so(tmp_path):
    """In a process of its own, for profiles are global and this session has its own."""
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    said = subprocess.check_output(
        [sys.executable, "-c", SCRIPT], env=plain, cwd=tmp_path, text=True
    )
    *profiles, loaded, is_library = said.splitlines()
    assert profiles == ["20 False False", "50 True True", "2000", "3 False"], (
        "with a device few cases, and those that failed before, whatever the environment says"
    )
    assert loaded == "set()", (
        "commands and tapes import these, a session of kernels does not"
    )
    assert is_library == "True", (
        "Hypothesis resolved the paths of all of Python's modules"
    )


def test_pytest_rewrites_no_assert_of_modules_of_a_kernel_session():
    """To read packages with a plugin, which it rewrites, takes it a third of a small session."""
    loaded = [
        sys.modules[name]
        for name in ("difftest.testing.contract.spec", "hypothesis.core")
    ]
    assert {type(module.__loader__) for module in loaded} == {SourceFileLoader}


def test_a_test_whose_name_begins_as_a_package_has_its_asserts_rewritten(
    tmp_path, monkeypatch
):
    (tmp_path / "numpy_test.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert _FastFinder.find_spec("numpy_test") is None
