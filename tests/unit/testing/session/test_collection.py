from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.session.collection import holds_kernel_tests
from tests.every import every


@every(
    "source",
    [
        "from difftest import kernel_test",
        "from difftest import sizes, kernel_test as kt",
        "from difftest.testing.harness.decorator import kernel_test",
        "if True:\n    from difftest import kernel_test",
        "import difftest\n@difftest.kernel_test()\ndef test(case): ...",
    ],
)
def test_a_module_that_imports_kernel_test_holds_kernel_tests(tmp_path, source):
    path = tmp_path / "test_it.py"
    path.write_text(source)
    assert holds_kernel_tests(path)


@every(
    "source",
    [
        "",
        "import difftest",
        "from difftest import sizes  # not kernel_test",
        "from other import kernel_test",
        "from difftest_extra import kernel_test",
        "from .difftest import kernel_test",
        "'from difftest import kernel_test'",
        "other.kernel_test()",
        "from difftest import kernel_test\n)",
        "\0from difftest import kernel_test",
    ],
)
def test_other_modules_do_not(tmp_path, source):
    path = tmp_path / "test_it.py"
    path.write_text(source)
    assert not holds_kernel_tests(path)


def test_files_that_are_no_modules_do_not(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("from difftest import kernel_test")
    assert not holds_kernel_tests(path)
    assert not holds_kernel_tests(tmp_path / "missing.py")


def test_an_attribute_of_the_same_name_is_not_taken_for_a_kernel_test():
    def test(): ...

    test.difftest = "mine"
    assert kernel_test_of(test) is None
    assert kernel_test_of(None) is None
