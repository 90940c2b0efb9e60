import json

import pytest

from difftest.timing.report import Report
from difftest.timing.views.perfetto import perfetto
from tests.unit.timing.shipped import prediction_of


@pytest.fixture(scope="module")
def report():
    return Report(prediction_of("transpose.transpose_by_tiles", (256, 256), dge=False))


@pytest.fixture(scope="module")
def trace(report):
    return json.loads(json.dumps(perfetto(report)))


def test_each_instruction_is_one_slice(report, trace):
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(report.prediction.schedule.spans) == 1 + 4 * 4
    assert all(event["dur"] > 0 for event in slices)
    assert {event["args"]["evidence"] for event in slices} == {"measured"}


def test_slices_of_a_thread_do_not_overlap(trace):
    threads = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    assert len(threads) >= 4
    for events in threads.values():
        events.sort(key=lambda event: event["ts"])
        ends = [event["ts"] + event["dur"] for event in events]
        starts = [event["ts"] for event in events[1:]]
        assert all(
            start >= end - 1e-6 for start, end in zip(starts, ends, strict=False)
        )


def test_every_thread_with_slices_has_a_name(trace):
    named = {
        (event["pid"], event["tid"])
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    used = {
        (event["pid"], event["tid"])
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    }
    assert used <= named


def test_arrows_begin_and_end(trace):
    starts = [event["id"] for event in trace["traceEvents"] if event["ph"] == "s"]
    ends = [event["id"] for event in trace["traceEvents"] if event["ph"] == "f"]
    assert starts == ends != []


def test_memories_are_counted_and_it_says_predicted(trace):
    counters = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert counters == {"SBUF", "PSUM"}
    names = [
        e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    ]
    assert all("predicted" in name for name in names)
