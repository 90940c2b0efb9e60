"""The table of levels: each row at its level and beyond it, and idioms of earlier levels."""

import inspect
import re
import sys
import warnings

import numpy as np
import pytest

from difftest.simulator import (
    DtypeError,
    KernelError,
    NkiError,
    NotModelledError,
    launch,
    launch_ranks,
)
from difftest.simulator.entry.install import embedded
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.levels import LEVELS, LIFETIMES, READ_AS, LevelWarning
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, tile

MODULES = {"nl": nl, "nisa": nisa, "ncc": ncc}
ORDER = ("0.2", *LEVELS)


def selected(*arguments, **keywords):
    """`affine_select` of ones below the diagonal."""
    out = nl.ndarray((4, 4), nl.float32)
    nisa.affine_select(out, [[-1, 4]], *arguments, **keywords)
    return out


def looped(register):
    """The loop of the older parser."""
    while register:
        pass


IN_WORDS = {
    "a buffer named by a string": lambda: nl.ndarray((2, 2), nl.float32, buffer="psum"),
    "buffer=None": lambda: nl.ndarray((2, 2), nl.float32, buffer=None),
    "a float as nisa.memset's value for integers": lambda: nisa.memset(
        tile((2, 2), nl.uint32), 3.0
    ),
    "a number for a member of an enumeration": lambda: nisa.dma_copy(
        nl.ndarray((2, 2), nl.float32), tile((2, 2)), dge_mode=3
    ),
    "depends_on of a kind": lambda: nisa.NkiInstruction().depends_on(
        kind=nisa.dependency.runtime
    ),
    "nisa.affine_select with offset third": lambda: selected(0, 1, tile((4, 4)), 0.0),
    "nisa.tensor_scalar_reduce without reduce_res": lambda: nisa.tensor_scalar_reduce(
        tile((2, 2)), tile((2, 2)), nl.add, 1.0, nl.add
    ),
    "nl.ndarray with an address in HBM": lambda: nl.ndarray(
        (2, 2), nl.float32, buffer=nl.private_hbm, address=(0,)
    ),
    "while with a register": lambda: looped(nisa.register_alloc(0)),
    "nki.jit with platform_target": lambda: jit(lambda: None, platform_target="trn1")(),
    "nl.rsqrt of a tile in PSUM": lambda: nl.rsqrt(tile((2, 2), buffer=nl.psum)),
}
"""Uses of the rows that are not names."""


def use(row):
    """Use a row of the table, however wrongly: the level is checked first."""
    if row in IN_WORDS:
        return IN_WORDS[row]()
    path, _, argument = row.removesuffix(")").partition("(")
    short, *names = path.split(".")
    value = MODULES[short]
    for name in names:
        value = tile((2, 2)) if name == "NkiTensor" else getattr(value, name)
    if not inspect.isroutine(value):
        return value
    given = [argument] if argument else []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.default is parameter.empty and given:
            given.append(parameter.name)
    return value(**dict.fromkeys(given))


def refusal(row, level):
    """Return the text with which the level rejects a row; None if it has it."""

    def kernel():
        use(row)

    try:
        launch(jit(kernel), level=level)
    except (NkiError, AttributeError) as error:
        found = re.search(
            rf"{re.escape(row)} exists (until|since) NKI \d\.\d", str(error)
        )
        return found and f"{found[0]} | {error.received} | {error.remedy}"
    return None


@every("row", sorted(LIFETIMES))
def test_each_row_holds_at_its_levels_and_at_no_other(row):
    if "tensor_copy_dynamic" in row:
        with pytest.raises(AttributeError):
            launch(jit(lambda: use(row)))
        return
    since, ended, instead = LIFETIMES[row]
    for level in LEVELS:
        here = ORDER.index(since) <= ORDER.index(level)
        here = here and (ended is None or ORDER.index(level) < ORDER.index(ended))
        with warnings.catch_warnings():
            warnings.simplefilter("error", LevelWarning)
            text = refusal(row, level)
        assert (text is None) == here, (level, text)
        if text is not None:
            bound = f"until NKI {ended}" if ended else f"since NKI {since}"
            assert f"exists {bound} | {row} at level {level} | " in text
            assert instead in text


@every("row", sorted(LIFETIMES))
def test_without_a_level_all_names_exist_and_ended_ones_warn(row):
    if "tensor_copy_dynamic" in row:
        return  # it lacks a function at every level: the next test
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LevelWarning)
        assert refusal(row, None) is None
    ended = LIFETIMES[row].ended
    texts = [str(one.message) for one in caught if one.category is LevelWarning]
    if ended is None:
        assert texts == []
    else:
        assert any(
            text.startswith(f"{row} ended with NKI {ended}: ") for text in texts
        ), texts


def test_a_name_of_earlier_levels_names_its_replacement():
    with pytest.raises(
        AttributeError, match=r"tensor_copy_dynamic_src'.*ended with NKI 0.4; use"
    ):
        _ = nisa.tensor_copy_dynamic_src
    assert not hasattr(nisa, "tensor_copy_dynamic_dst")


def test_outside_a_kernel_every_name_can_be_imported():
    assert callable(nl.fori_loop)
    assert nl.par_dim(128) == 128


# -- idioms of earlier levels behave as the current ones do ----------------------------------------


def test_idioms_of_earlier_levels_are_rows_of_the_table():
    assert READ_AS.keys() <= LIFETIMES.keys()
    assert all(LIFETIMES[row].ended for row in READ_AS)


def below(array):
    return np.tril(array)


@every(
    "make, expected",
    [
        (lambda t: selected(0, 1, t, 0.0, nl.greater_equal), below),
        (lambda t: selected(0, 1, t, 0.0), lambda a: np.diag(np.diag(a))),
        (lambda t: t.reshape(new_shape=(4, 2, 2)), lambda a: a.reshape(4, 2, 2)),
        (
            lambda t: moved(t, nl.ndarray((nl.par_dim(4), 4), nl.float32, buffer=None)),
            None,
        ),
        (lambda t: moved(t, nl.ndarray((4, 4), nl.float32, buffer="sbuf")), None),
        (lambda t: dma(t, unique_indices=True), None),
        (lambda t: dma(t, dge_mode=1), None),
        (lambda t: copied(t, dtype=nl.float32), None),
        (lambda t: register_of(5), lambda a: np.array([[5]], np.int32)),
    ],
)
def test_an_idiom_of_an_earlier_level_keeps_its_effect(make, expected):
    array = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    with pytest.warns(LevelWarning, match="ended with NKI"):
        result = on_nki_tiles(make, array)
    np.testing.assert_array_equal(
        result, array if expected is None else expected(array)
    )


def moved(source, out):
    nisa.tensor_copy(out, source)
    return out


def copied(source, **keywords):
    out = nl.ndarray((4, 4), nl.float32)
    nisa.tensor_copy(dst=out, src=source, **keywords)
    return out


def test_a_copy_has_no_dtype_beside_that_of_its_dst():
    for plain in (False, True):
        with pytest.warns(LevelWarning), pytest.raises(DtypeError, match="dst's dtype"):
            launch(
                jit(lambda: copied(nl.zeros((4, 4), nl.float32), dtype="int8")),
                plain=plain,
            )


def dma(source, **keywords):
    out = nl.ndarray((4, 4), nl.float32)
    nisa.dma_copy(out, source, **keywords)
    return out


def register_of(value):
    register = nisa.register_alloc()
    out = nl.ndarray((1, 1), nl.int32)
    nisa.register_move(register, imm=value)
    nisa.register_store(out, register)
    return out


def test_an_idiom_is_refused_at_a_level_that_does_not_have_it():
    with pytest.raises(KernelError, match=r"exists until NKI 0\.3") as caught:
        launch(jit(lambda: register_of(5)), level="0.3")
    assert caught.value.location.file == __file__


def test_a_warning_points_at_the_kernels_line():
    def kernel():
        register_of(5)

    with pytest.warns(LevelWarning) as caught:
        launch(jit(kernel))
    first = inspect.getsourcelines(register_of)[1]
    assert [(one.filename, one.lineno - first) for one in caught] == [(__file__, 3)]


# -- who says the level ----------------------------------------------------------------------------


def loops():
    nl.fori_loop(0, 1, lambda i: None)


def test_kernels_made_under_a_level_are_of_it():
    with embedded(level="0.5"):
        import nki

        made = nki.jit(loops), nki.jit()(loops)
        simulated = nki.simulate(loops), nki.simulate(made[0][1])
    for call in (*made, *simulated):
        with pytest.raises(KernelError, match=r"since NKI 0\.6"):
            call()
    launch(made[0], level="0.6")
    before = dict(sys.modules)
    with pytest.raises(
        KernelError, match="a level of NKI is one of the accepted values"
    ):
        embedded(level="0.9").install()
    assert sys.modules == before


def test_ranks_have_a_level():
    with pytest.raises(KernelError, match=r"since NKI 0\.6"):
        launch_ranks(jit(loops), [[], []], level="0.5")
    launch_ranks(jit(loops), [[], []], level="0.6")


def test_a_name_that_is_not_modelled_raises_at_a_level_too():
    with pytest.raises(NotModelledError):
        launch(jit(lambda: nl.int64()), level="0.7")


def test_a_kernel_may_test_for_names_of_its_level():
    asked = {}

    @jit
    def kernel(a):
        asked["has"] = hasattr(nl, "float8_e8m0fnu")
        asked["instead"] = getattr(nl, "float8_e8m0fnu", None)
        return a

    launch(kernel, [np.ones((2, 2), np.float32)], level="0.3")
    assert asked == {"has": False, "instead": None}
    launch(kernel, [np.ones((2, 2), np.float32)], level="0.7")
    assert asked == {"has": True, "instead": nl.float8_e8m0fnu}
