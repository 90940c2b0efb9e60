import os
import subprocess
import sys

from tests.every import every

SCRIPT = """
from hypothesis import Phase, settings
from difftest.plugin.profiles import default_profile
before = settings.default
with default_profile(device=False):
    loaded = settings.default
    for name in ("quick", "ci", "nightly", "device"):
        profile = settings.get_profile(name)
        assert profile.deadline is None and profile.print_blob, name
        assert Phase.explain not in profile.phases and Phase.shrink in profile.phases, name
    print(loaded.max_examples, loaded.derandomize, loaded.database is None)
    print(settings.get_profile("nightly").max_examples)
assert settings.default == before
with default_profile(device=True):
    print(settings.default.max_examples, settings.default.database is None)
    settings.load_profile("nightly")
assert settings.default.max_examples == 2000, "whoever loads another profile keeps it"
"""


@every("environment, loaded", [({}, "20 False False"), ({"CI": "true"}, "50 True True")])
def test_quick_is_the_default_and_ci_where_the_environment_says_so(environment, loaded, tmp_path):
    """In a process of its own, for profiles are global and this session has its own."""
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**plain, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines() == [loaded, "2000", "3 False"], (
        "with a device few cases, and those that failed before, whatever the environment says"
    )
