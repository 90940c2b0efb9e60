"""`nki.jit`, `nki.simulate`, and the arguments and results of kernels of the current dialect."""

import dataclasses
import enum
import functools
import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from difftest.simulator import KernelError, NotModelledError, launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.entry.kernel import jit as classic_jit
from difftest.simulator.entry.nki_kernel import NkiKernel, jit, modules, simulate
from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic_nl
from difftest.simulator.frontend.launchable import TARGET_VARIABLE, is_nki
from difftest.simulator.frontend.levels import LevelError, LevelWarning
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.machine import TRN1, TRN2, TRN3
from tests.every import every

nt = modules()["nki.typing"]

A = np.arange(8, dtype=np.float32).reshape(2, 4)


def scaled(a: nt.tensor[2, 4], factor=2.0):
    """`a * factor`, through SBUF."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nisa.dma_copy(out, tile)
    return out


@every("decorated", [jit(scaled), jit()(scaled), jit(debug=True)(scaled)])
def test_each_form_of_jit_makes_a_kernel(decorated):
    assert isinstance(decorated, NkiKernel)
    assert decorated.__name__ == "scaled"
    np.testing.assert_array_equal(decorated(A), A * 2)


@every(
    "run",
    [
        simulate(jit(scaled)),
        simulate(scaled),
        simulate(jit(scaled)[2]),
        simulate(jit(scaled))[2],
        jit(scaled)[1],
        jit(scaled).with_schedule([]),
        lambda a: launch(jit(scaled), (a,)).outputs[0],
        lambda a: launch(scaled, (a,)).outputs[0],
    ],
)
def test_each_way_to_run_a_kernel_gives_its_array(run):
    result = run(A)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, A * 2)


def test_a_kernel_takes_keywords_and_has_defaults():
    np.testing.assert_array_equal(simulate(scaled)(a=A, factor=3.0), A * 3)
    with pytest.raises(KernelError, match="unexpected keyword argument 'b'"):
        _ = simulate(scaled)(A, b=1)


@jit
def two(a):
    return scaled(a), scaled(a, 3.0)


def test_several_outputs_are_a_tuple():
    first, second = simulate(two)(A)
    np.testing.assert_array_equal(first, A * 2)
    np.testing.assert_array_equal(second, A * 3)


def test_a_jitted_kernel_inside_another_is_inlined():
    inner = jit(scaled)
    np.testing.assert_array_equal(simulate(lambda a: inner(inner(a)))(A), A * 4)


def in_place(a):
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(a, tile)
    return a


def test_an_argument_that_the_kernel_writes_is_updated():
    array = A.copy()
    returned = simulate(in_place)(array)
    np.testing.assert_array_equal(array, A + 1)
    np.testing.assert_array_equal(returned, A + 1)


class Mode(enum.Enum):
    DOUBLE = 2.0


@dataclasses.dataclass(frozen=True)
class Config:
    mode: Mode
    weights: np.ndarray


class Options(nl.NKIObject):
    factor: float = 5.0
    note: str


def test_dataclasses_objects_enums_and_tuples_are_passed_through():
    def kernel(config, options, arrays, names):
        assert config.mode is Mode.DOUBLE
        assert options.factor == 5.0
        assert options.note is None
        assert names == ("x", {"y": 1})
        assert config.weights.shape == (2, 4)
        return scaled(config.weights, config.mode.value), scaled(
            arrays[1], options.factor
        )

    config = Config(Mode.DOUBLE, A)
    first, second = simulate(kernel)(config, Options(), (A, A + 1), ("x", {"y": 1}))
    np.testing.assert_array_equal(first, A * 2)
    np.testing.assert_array_equal(second, (A + 1) * 5)
    assert config.weights is A


def test_post_init_of_an_object_runs():
    class Sized(nl.NKIObject):
        size: int = 3

        def __post_init__(self):
            self.double = self.size * 2

    assert Sized(size=4).double == 8


def test_fields_of_an_object_are_taken_in_their_order_or_by_name():
    assert vars(Options(2.0, "x")) == {"factor": 2.0, "note": "x"}
    assert vars(Options(2.0, note="x")) == {"factor": 2.0, "note": "x"}
    with pytest.raises(SignatureError, match="got 3 values for 2 fields"):
        Options(1.0, "x", "y")
    with pytest.raises(SignatureError, match="got two values for factor"):
        Options(1.0, factor=2.0)


@every("decorate", [lambda cls: cls, dataclasses.dataclass])
def test_a_default_without_an_annotation_makes_a_field(decorate):
    @decorate
    class Part(nl.NKIObject):
        step: int
        start = None
        size: int = 4
        LIMITS = ()

        def end(self):
            return self.start + self.size

    assert vars(Part(1, start=3)) == {"step": 1, "size": 4, "start": 3, "LIMITS": ()}
    assert vars(Part()) == {"step": None, "size": 4, "start": None, "LIMITS": ()}
    assert Part(1, start=3).end() == 7
    assert Part(step=1).start is None


def test_a_grid_larger_than_a_logical_core_is_refused():
    with pytest.raises(KernelError, match="takes the cores of one logical NeuronCore"):
        jit(scaled)[4]


@every("target, machine", [("trn1", TRN1), ("gen3", TRN2), ("", TRN2)])
def test_the_environment_names_the_machine(monkeypatch, target, machine):
    monkeypatch.setenv(TARGET_VARIABLE, target)
    assert jit(scaled).machine is machine


def test_an_unknown_target_says_which_there_are(monkeypatch):
    monkeypatch.setenv(TARGET_VARIABLE, "trn9")
    with pytest.raises(KernelError, match="trn9") as error:
        simulate(scaled)(A)
    assert "trn1, inf2, gen2" in str(error.value)


def test_the_decorator_of_earlier_levels_names_the_machine(monkeypatch):
    kernel = jit(scaled, platform_target="trn1")
    for one in (kernel, kernel[1], jit(platform_target="inf2")(scaled)):
        with pytest.warns(
            LevelWarning, match="platform_target ended with NKI 0.3: use NEURON_PLA"
        ):
            assert launch(one, [A]).trace.machine == "trn1"
    with pytest.raises(LevelError, match=r"at level 0\.3") as error:
        launch(kernel, [A], level="0.3")
    assert error.value.location.text == 'kernel = jit(scaled, platform_target="trn1")'
    with pytest.raises(
        KernelError, match="platform_target is trn9, which is not modelled"
    ):
        launch(jit(scaled, platform_target="trn9"), [A])
    monkeypatch.setenv(TARGET_VARIABLE, "trn3")
    assert kernel.machine is TRN3


def test_a_function_has_the_dialect_of_its_calls():
    class Callable:
        def __call__(self, a):
            return inner(a)

    def through_helpers(a):
        return helper(a)

    def helper(a):
        return jit(scaled)(a)

    inner = jit(scaled)
    for kernel in (Callable(), through_helpers, helper, functools.partial(helper)):
        assert is_nki(kernel)
    module = ModuleType("kernels")
    module.__file__ = __file__
    module.kernel, module.inside = inner, module
    owner = SimpleNamespace(kernel=inner)
    assert is_nki(lambda a: module.inside.kernel(a))
    assert is_nki(lambda a: owner.kernel(a))
    assert not is_nki(lambda a: (module.other, owner.other))
    module.__file__ = np.__file__
    assert not is_nki(lambda a: module.kernel(a))
    assert is_nki(lambda a: (classic_nl.load, helper, nl.load))
    assert not is_nki(lambda a: (helper, classic_nl.load))
    assert not is_nki(lambda a: a)


def test_the_package_has_a_version_and_a_class_of_dtypes():
    for level, version in ((None, "0.6.0"), ("0.3", "0.3.0")):
        with embedded(level=level):
            import nki

            assert nki.__version__ == version
            assert isinstance(nl.bfloat16, nki.dtype)


def test_jit_warns_of_an_ended_argument_and_rejects_an_unknown_one():
    with pytest.warns(UserWarning, match="ignores mode="):
        jit(scaled, mode="auto")
    with pytest.raises(NotModelledError, match="speed"):
        jit(speed=11)


def test_an_argument_that_an_instruction_does_not_have_is_named_with_its_remedy():
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_copy(tile, tile, mask=None)

    with pytest.raises(SignatureError, match="keyword argument 'mask'") as error:
        simulate(kernel)(A)
    assert "masks ended with NKI 0.2" in str(error.value)
    assert "nisa.tensor_copy(tile, tile, mask=None)" in error.value.location.text
    assert isinstance(error.value, TypeError)


def test_a_type_error_from_inside_stays_a_type_error():
    def kernel(a):
        nl.full(a.shape, object(), nl.float32)

    with pytest.raises(KernelError, match="memset takes a number as value"):
        simulate(kernel)(A)


def test_both_dialects_in_one_file():
    @classic_jit
    def classic(a):
        out = classic_nl.ndarray(a.shape, dtype=a.dtype, buffer=classic_nl.shared_hbm)
        tile = classic_isa.tensor_scalar(classic_nl.load(a), classic_nl.multiply, 2.0)
        classic_nl.store(out, tile)
        return out

    plain = classic.function
    for kernel in (classic, plain, scaled, jit(scaled)):
        np.testing.assert_array_equal(launch(kernel, (A,)).outputs[0], A * 2)


def test_the_plain_mode_runs_it_too():
    np.testing.assert_array_equal(launch(scaled, (A,), plain=True).outputs[0], A * 2)


def test_nki_is_there_in_the_scope_and_no_longer():
    before = sys.modules.get("nki")
    with embedded():
        import nki
        import nki.isa
        import nki.language
        from nki.isa.constants import dge_mode

        assert nki.isa.dma_copy is nisa.dma_copy
        assert nki.language.float32 == np.float32
        assert dge_mode is nisa.dge_mode
        assert nki.jit is jit
    assert sys.modules.get("nki") is before


HELPERS = {
    "isa": ("public", "current", "moves", "missing_name"),
    "isa.constants": ("check_level", "member_of"),
    "language": ("np", "check_name", "functions"),
    "collectives": ("exchange", "API"),
}


@every("module", HELPERS)
def test_a_helper_of_ours_is_no_name_of_nki(module):
    """A typo would run here and fail on AWS's."""
    with embedded():
        made = importlib.import_module(f"nki.{module}")
    for name in HELPERS[module]:
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(made, name)


@every("cores, buffer", [(1, nl.hbm), (2, nl.shared_hbm)])
def test_arguments_are_in_hbm_or_in_shared_hbm(cores, buffer):
    """As AWS's page of its simulator has it (nki_simulator.rst, v2.32.0)."""
    seen = []

    def kernel(x):
        seen.append(x.buffer)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    simulate(jit(kernel)[cores])(np.ones((2, 4), np.float32))
    assert set(seen) == {buffer}


def test_modules_that_public_code_imports_from():
    with embedded():
        from nki.language.tensor import NkiTensor
        from nki.simulator import simulate_kernel

        assert NkiTensor is nl.NkiTensor
        np.testing.assert_array_equal(
            simulate_kernel(jit(scaled), (A,), {"factor": 3.0}), A * 3
        )

        def programs(a):
            return scaled(a, float(nl.num_programs()))

        np.testing.assert_array_equal(simulate_kernel(programs, (A,), None, 2), A * 2)
