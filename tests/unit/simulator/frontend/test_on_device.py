"""``nki.baremetal``, ``nki.profile`` and ``nki.benchmark``: the files that they write."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    KernelError,
    NotModelledError,
    RuleWarning,
    strictness,
    trace_from_json,
)
from difftest.simulator.entry.artifacts import PROFILE_FORMAT
from difftest.simulator.entry.kernel import (
    baremetal_with,
    benchmark_with,
    jit,
    profile_with,
    simulate_kernel,
)
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


class Predicted:
    def get_latency_percentile(self, percentile):
        return 7.0

    def get_interval(self):
        return 6.0, 9.0

    caution = ""

    def profile(self):
        return {"predicted": True, "nc_latency_us": {"50": 7.0}}


def predict(trace, machine, dge):
    assert len(trace)
    return Predicted()


def add_one(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + 1.0)
    return out


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


WAYS = {
    "benchmark": benchmark_with,
    "baremetal": baremetal_with,
    "profile": profile_with,
}


def files():
    return sorted(path.as_posix() for path in Path().rglob("*") if path.is_file())


def run(way, predictor=predict, data=DATA, **options):
    """Call the kernel under a decorator, expecting its one warning."""
    kernel = WAYS[way](predictor)(add_one, **options)
    with pytest.warns(RuleWarning) as caught:
        assert_array_equal(kernel(data), np.asarray(data) + 1)
    return [str(one.message) for one in caught]


def assert_is_trace(path):
    trace = trace_from_json(Path(path).read_text())
    assert [event.opcode for event in trace] == [
        "dma_copy",
        "tensor_scalar",
        "dma_copy",
    ]


def assert_is_profile(path):
    document = json.loads(Path(path).read_text())
    assert document["format"] == PROFILE_FORMAT
    assert document["about"].endswith("nothing was measured")
    assert (document["predicted"], document["kernel"]) == (True, "add_one")
    assert document["nc_latency_us"] == {"50": 7.0}


@pytest.mark.parametrize("way", ["benchmark", "baremetal"])
def test_a_trace_for_the_neff_and_a_predicted_profile_for_the_ntff(way):
    (warning,) = run(way, save_neff_name="file.neff", save_trace_name="profile.ntff")
    assert f"(nki.{way})" in warning
    assert (
        "received: save_neff_name='file.neff', save_trace_name='profile.ntff'\n"
        in warning
    )
    assert files() == ["file.neff", "profile.ntff"]
    assert_is_trace("file.neff")
    assert_is_profile("profile.ntff")


@every(
    "way, parameter",
    [("benchmark", "kernel"), ("baremetal", "kernel"), ("profile", "func")],
)
def test_a_kernel_is_given_by_the_name_that_is_documented(way, parameter, folder):
    named = WAYS[way](predict)(**{parameter: add_one})
    assert_array_equal(named(DATA), DATA + 1)
    other = {"func", "kernel"} - {parameter}
    with pytest.raises(NotModelledError, match=f"nki.{way}'s argument '{min(other)}'"):
        WAYS[way](predict)(**dict.fromkeys(other, add_one))


@pytest.mark.parametrize("way", ["benchmark", "baremetal"])
def test_only_requested_files_are_written(way):
    run(way, save_trace_name=Path("only.ntff"))
    assert files() == ["only.ntff"]


def test_the_folder_of_artifacts():
    run("baremetal", artifacts_dir="made/artifacts")
    assert files() == ["made/artifacts/trace.json"]
    assert_is_trace("made/artifacts/trace.json")


def test_the_working_directory_of_a_profile(folder):
    run("profile", working_directory=folder / "reports", profile_nth=2)
    assert files() == ["reports/file.neff", "reports/profile.ntff"]
    assert_is_trace("reports/file.neff")
    assert_is_profile("reports/profile.ntff")
    run(
        "profile",
        working_directory="reports",
        save_neff_name="b.neff",
        save_trace_name="b.ntff",
    )
    assert files()[:2] == ["reports/b.neff", "reports/b.ntff"]


def test_a_profile_replaces_files_on_request(folder):
    run("profile", working_directory=folder)
    before = Path("file.neff").read_text()
    (warning,) = run(
        "profile", working_directory=folder, data=np.ones((4, 2), np.float32)
    )
    assert f"not written: {folder / 'file.neff'}, {folder / 'profile.ntff'}" in warning
    assert Path("file.neff").read_text() == before
    wide = np.ones((4, 2), np.float32)
    (warning,) = run("profile", working_directory=folder, overwrite=True, data=wide)
    assert "not written" not in warning
    assert Path("file.neff").read_text() != before


@pytest.mark.parametrize("way", ["benchmark", "baremetal"])
def test_its_own_files_are_replaced(way):
    run(way, save_neff_name="file.neff", save_trace_name="profile.ntff")
    before = Path("file.neff").read_text()
    wide = np.ones((4, 2), np.float32)
    run(way, save_neff_name="file.neff", save_trace_name="profile.ntff", data=wide)
    assert Path("file.neff").read_text() != before
    assert_is_profile("profile.ntff")


@pytest.mark.parametrize("way", ["benchmark", "baremetal", "profile"])
def test_files_of_a_device_are_never_replaced(folder, way):
    """A prediction in the place of a measurement would be taken for one."""
    Path("file.neff").write_bytes(b"\x7fNEFF")
    Path("profile.ntff").mkdir()
    options = (
        {"working_directory": folder, "overwrite": True} if way == "profile" else {}
    )
    warning, *_ = run(
        way, save_neff_name="file.neff", save_trace_name="profile.ntff", **options
    )
    assert "not written: " in warning
    assert "remedy:   name files that are not there yet" in warning
    assert Path("file.neff").read_bytes() == b"\x7fNEFF"
    assert files() == ["file.neff"]


@every("way", ["benchmark", "baremetal"])
def test_a_note_that_is_an_error_leaves_nothing_behind(way):
    kernel = WAYS[way](predict)(add_one, save_neff_name="file.neff")
    with (
        strictness("documented"),
        pytest.raises(KernelError, match="can write the requested files"),
    ):
        kernel(DATA)
    assert files() == []


@pytest.mark.parametrize("way", ["baremetal", "profile"])
def test_without_a_timing_model_there_is_a_trace_alone(way):
    options = {"working_directory": "."} if way == "profile" else {}
    (warning,) = run(
        way, None, save_neff_name="f.neff", save_trace_name="p.ntff", **options
    )
    assert "here it is the trace, as JSON" in warning
    assert "not written: p.ntff" in warning
    assert files() == ["f.neff"]


def cannot(trace, machine, dge):
    raise not_modelled("the latency of kernels on trn9", "no costs")


def test_a_kernel_without_a_prediction_has_another_note():
    first, second = run(
        "baremetal", cannot, save_neff_name="f.neff", save_trace_name="p.ntff"
    )
    assert "can write the requested files" in first
    assert second.startswith("the latency of kernels on trn9 is not modelled")
    assert files() == ["f.neff"]


def test_no_warning_without_a_requested_file(recwarn):
    for way in ("baremetal", "benchmark"):
        kernel = WAYS[way](predict)(
            add_one, save_neff_name=None, additional_compile_opt="-O1"
        )
        assert_array_equal(kernel(DATA), DATA + 1)
    assert (files(), list(recwarn)) == ([], [])


@every("way", ["benchmark", "baremetal"])
def test_a_path_is_a_path(way):
    kernel = WAYS[way](predict)(add_one, save_trace_name=3)
    with pytest.raises(KernelError, match="got a int as save_trace_name"):
        kernel(DATA)


@every("way", ["benchmark", "baremetal"])
def test_a_file_that_cannot_be_written(way):
    kernel = WAYS[way](predict)(add_one, save_neff_name="nowhere/file.neff")
    with (
        pytest.warns(RuleWarning),
        pytest.raises(KernelError, match="No such file") as caught,
    ):
        kernel(DATA)
    assert caught.value.received == os.path.join("nowhere", "file.neff")


def test_the_compiler_option_of_descriptors_reaches_the_model():
    asked = []

    def ask(trace, machine, dge):
        asked.append(dge)
        return Predicted()

    for option in (None, "--disable-dge"):
        run("baremetal", ask, save_trace_name="p.ntff", additional_compile_opt=option)
    assert asked == [True, False]


def test_a_grid_and_an_annotation(recwarn):
    kernel = profile_with(predict)(add_one)[2]
    assert kernel(nt.tensor[[4, 2], nl.bfloat16]).shape == (4, 2)
    assert kernel.__name__ == "add_one"


def test_inside_another_kernel_it_is_inlined():
    inner = baremetal_with(predict)(
        lambda tile: nl.multiply(tile, 2.0), save_neff_name="f.neff"
    )

    def outer(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, inner(nl.load(x)))
        return out

    assert_array_equal(baremetal_with(None)(outer)(DATA), 2 * DATA)
    assert files() == []


def test_an_unknown_option_is_refused():
    with pytest.raises(NotModelledError, match=r"nki\.profile's argument 'warmup'"):
        profile_with(None)(warmup=3)


def rows_of_programs(x):
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[nl.program_id(0)], nl.load(x))
    return out


@every("way", WAYS)
def test_simulate_kernel_and_jit_take_the_kernel_under_a_decorator(way):
    decorated = WAYS[way](predict)(rows_of_programs)
    assert_array_equal(simulate_kernel(decorated[2], DATA), [DATA, DATA])
    assert jit(decorated).function is rows_of_programs


@every("way", WAYS)
def test_hints_of_how_often_and_where_it_runs(way):
    for hint in ("num_execs", "device_count"):
        with pytest.warns(RuleWarning, match=hint):
            decorated = WAYS[way](predict)(add_one, **{hint: 2})
        assert_array_equal(decorated(DATA), DATA + 1)
        with strictness("documented"), pytest.raises(KernelError, match=hint):
            WAYS[way](predict)(add_one, **{hint: 2})
