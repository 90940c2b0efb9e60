import multiprocessing

import pytest

from difftest.backends.device.history import (
    HistoryError,
    append,
    digest_of,
    history_file,
    latest,
    measured_p99,
    read_history,
)
from tests.every import every
from tests.unit.backends.device.records import record

TEST = "224x224, float16, no pool"


def test_what_is_appended_is_read_again_in_order(tmp_path):
    file = tmp_path / "deep" / "history.json"
    for p99 in (3.0, 1.0, 2.0):
        append(file, record(p99=p99))
    assert [one.p99 for one in read_history(file)] == [3, 1, 2]
    assert latest(read_history(file), test=TEST).p99 == 2


def test_no_file_is_an_empty_history(tmp_path):
    assert read_history(tmp_path / "none.json") == []


@every("text", ["", "{", "[]", "{}", '{"records": [{"p99": 1}]}'])
def test_a_file_that_is_none_is_an_error_and_stays_as_it_is(tmp_path, text):
    file = tmp_path / "history.json"
    file.write_text(text)
    with pytest.raises(HistoryError, match=r"history\.json is not a history"):
        append(file, record())
    assert file.read_text() == text


def append_many(file, number):
    for _ in range(10):
        append(file, record(source=str(number)))


def test_two_processes_lose_nothing(tmp_path):
    file = tmp_path / "history.json"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append_many, args=(file, one)) for one in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(one.source for one in read_history(file)) == ["0"] * 10 + ["1"] * 10


def test_the_grade_takes_the_measurement_of_exactly_this_file(tmp_path):
    file, kernel = tmp_path / "history.json", tmp_path / "conv2d.py"
    kernel.write_text("version = 1")
    append(file, record(source=digest_of(kernel), p99=900.0))
    append(file, record(source="another file", p99=100.0))
    append(file, record(source=digest_of(kernel), test="another test", p99=50.0))
    assert measured_p99(kernel, TEST, file) == 900
    kernel.write_text("version = 2")
    assert measured_p99(kernel, TEST, file) is None


def test_without_a_history_nothing_was_measured(tmp_path):
    kernel = tmp_path / "conv2d.py"
    kernel.write_text("")
    assert measured_p99(kernel, TEST, tmp_path / "none.json") is None


def test_what_is_no_measurement_does_not_count(tmp_path):
    file, kernel = tmp_path / "history.json", tmp_path / "conv2d.py"
    kernel.write_text("")
    append(file, record(source=digest_of(kernel), kind="predicted"))
    assert measured_p99(kernel, TEST, file) is None


def test_the_file_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("DIFFTEST_HISTORY", str(tmp_path / "mine.json"))
    assert history_file() == tmp_path / "mine.json"
    monkeypatch.delenv("DIFFTEST_HISTORY")
    assert str(history_file()) == ".difftest/performance.json"
