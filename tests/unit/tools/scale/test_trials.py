"""A tuner whose process is killed: the next process continues where it ended."""

import os
import subprocess
import sys
from collections import Counter

import optuna
import pytest
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from difftest.tools.scale.axes import Axes, parse_axes
from difftest.tools.scale.trials import _is_alive, _this_process
from difftest.tools.scale.tune import SLOWER, Tuner, TuningTrial
from tests.unit.tools.scale.sample import SPEC

AXES = Axes(parse_axes(["rows=1,2,3,4,5,6,7,8", "columns=1,2,3,4,5,6,7,8"]), {})
KILLED = """
import os, signal, sys
from tests.unit.tools.scale.test_trials import Search, file_storage

Search(file_storage(sys.argv[1])).run(30, 12, lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


class Killed(BaseException):
    """Ends the process like a signal that code cannot catch."""


def killed():
    raise Killed


def file_storage(path):
    return JournalStorage(JournalFileBackend(path))


class Search:
    """Processes that search one after the other, and what each asked for."""

    def __init__(self, storage):
        self.storage = storage
        self.asked = []

    def run(self, trials, last=0, end=killed, deadly=None):
        """Search until the point of number ``last``, or the ``deadly`` one; return those kept."""
        self.asked = []

        class Stub(Tuner):
            def timed(tuner, point, limit=0.0):
                self.asked.append(tuple(point.values()))
                if len(self.asked) == last or self.asked[-1] == deadly:
                    end()
                return TuningTrial(
                    point,
                    SLOWER,
                    1.0 + abs(point["rows"] - 5) + abs(point["columns"] - 2),
                )

        study = {
            "storage": self.storage,
            "study_name": "killed",
            "load_if_exists": True,
        }
        tuner = Stub(SPEC, AXES, study=study)
        try:
            for _ in tuner.search(trials, {"rows": 0, "columns": 0}):
                pass
        except Killed:
            pass
        return tuner.attempts

    @property
    def trials(self):
        return optuna.load_study(study_name="killed", storage=self.storage).get_trials()

    @property
    def states(self):
        return Counter(trial.state.name for trial in self.trials)


def test_the_point_of_a_killed_process_is_tried_again_and_no_trial_runs_for_ever(
    tmp_path,
):
    file = str(tmp_path / "journal")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, file], capture_output=True, text=True
    )
    assert done.returncode == -9, done.stderr
    search = Search(file_storage(file))
    assert search.states == {"RUNNING": 1, "COMPLETE": 11}
    last = search.trials[-1].params
    known = [tuple(trial.params.values()) for trial in search.trials[:-1]]
    attempts = search.run(30)
    assert search.asked[0] == (last["rows"] + 1, last["columns"] + 1)
    assert set(search.asked) & {(row + 1, column + 1) for row, column in known} == set()
    assert len(attempts) == 30
    assert search.states == {"FAIL": 1, "COMPLETE": 30}
    points = Counter(
        (trial.params["rows"], trial.params["columns"]) for trial in search.trials
    )
    assert sorted(points.values()) == [1] * 29 + [2], "that of the killed process alone"


def test_a_point_that_ends_two_processes_is_not_tried_a_third_time():
    search = Search(InMemoryStorage())
    search.run(12, last=5)
    deadly = search.asked[-1]
    search.run(12, deadly=deadly)
    assert search.asked == [deadly]
    attempts = search.run(12)
    assert deadly not in search.asked
    (ended,) = [one for one in attempts if tuple(one.point.values()) == deadly]
    assert ended.status == "inconclusive"
    assert ended.reason == "two processes ended while they looked at this point"
    assert search.states["RUNNING"] == 0
    assert search.run(12) == attempts
    assert search.asked == []


def test_a_point_that_a_person_stopped_is_always_tried_again():
    def stop():
        raise KeyboardInterrupt

    search = Search(InMemoryStorage())
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            search.run(12, last=1, end=stop)
        assert search.states["RUNNING"] == 0, "a stopped trial is over at once"
        assert search.asked == [(1, 1)]
    assert len(search.run(12)) == 12


def test_a_stored_attempt_without_a_reported_time_is_not_repeated(
    monkeypatch,
):
    search = Search(InMemoryStorage())
    tell = optuna.study.Study.tell

    def until(study, trial, *values, **more):
        if study.study_name == "killed":
            raise Killed
        return tell(study, trial, *values, **more)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.study.Study, "tell", until)
        search.run(3)
    assert search.states == {"RUNNING": 1}
    search.run(3)
    assert (1, 1) not in search.asked
    assert search.states == {"COMPLETE": 3}


def test_the_trial_of_a_process_that_lives_is_left_alone(tmp_path):
    host, me = _this_process()
    assert not _is_alive(None)
    assert not _is_alive([host, me]), "this process has one search at a time"
    assert not _is_alive([f"not-{host}", 1])
    assert _is_alive([host, os.getppid()])
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not _is_alive([host, ended.pid])
