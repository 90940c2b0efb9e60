from difftest.simulator.entry.install import embedded
from difftest.tools.lint.check import unused_helpers


def test_helpers_that_nothing_calls(tmp_path, monkeypatch):
    (tmp_path / "some_kernel.py").write_text(
        "import nki.language as nl\n\n\n"
        "def kernel(x):\n    return used(x)\n\n\n"
        "def used(x):\n    return deeper(x)\n\n\n"
        "def deeper(x):\n    return x\n\n\n"
        "def forgotten(x):\n    return nl.exp(deeper(x))\n\n\n"
        "def reference(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with embedded():
        import some_kernel

    (found,) = unused_helpers(some_kernel.kernel)
    assert (
        found.happened
        == "forgotten is defined and never called by the module's kernels"
    )
    assert found.location.line == 16


def test_helpers_of_a_kernel_without_source():
    namespace = {}
    exec("def kernel(x):\n    return x\n", namespace)
    assert unused_helpers(namespace["kernel"]) == []
