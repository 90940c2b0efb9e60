"""The trials of a tuner in a study of Optuna, which may outlive the tuner's process."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

Place: TypeAlias = tuple[int, ...]
"""The place of a point on each axis."""
KEPT = "attempt"
"""The attribute of a trial that holds the attempt at its point."""
_OWNER = "process"
"""The attribute of a trial that names the process of its point."""
_AGAIN = "again"
"""The attribute of a trial whose point an earlier process began but did not end."""
_REPEATS = 30
"""Known points that Optuna may propose in a row; then the first unknown point is taken."""


class Trials:
    """The trials of a search over axes, each with its number of values.

    The study has one complete trial of each point. A sampler also proposes known points. It
    therefore has its own study, in memory, where a known point may occur more than once.

    A process that is killed leaves a running trial. The next process fails that trial and tries
    its point once more. A point that ended two processes is not tried again: :meth:`settle`
    returns it.

    Attributes
    ----------
    times : the time of each point whose attempt is kept.
    """

    def __init__(self, study: Study, counts: Mapping[str, int]) -> None:
        import optuna

        self.study = study
        self.counts = counts
        self.times: dict[Place, float] = {}
        self._states = optuna.trial.TrialState
        self._kinds: Any = {
            name: optuna.distributions.IntDistribution(0, n - 1)
            for name, n in counts.items()
        }
        # With an equal seed, a continued search would propose the points of its first process.
        seed = len(study.get_trials(deepcopy=False))
        self._proposals = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed)
        )

    def settle(self, worst: float) -> list[Place]:
        """Settle the trials of ended processes; return the points that ended two processes.

        ``worst`` is the time of a point that has none.
        """
        lost: list[Place] = []
        for trial in self._trials(self._states.RUNNING):
            if _is_alive(trial.user_attrs.get(_OWNER)):
                continue
            kept = trial.user_attrs.get(KEPT)
            if kept is not None:  # the process ended before it reported the time
                time = worst if kept["own_us"] is None else kept["own_us"]
                self.study.tell(trial.number, time, skip_if_finished=True)
                continue
            self.study.tell(
                trial.number, state=self._states.FAIL, skip_if_finished=True
            )
            place = self._place(trial.params)
            if place is None:
                continue
            if trial.user_attrs.get(_AGAIN):
                lost.append(place)
            else:
                self.study.enqueue_trial(self._params(place), {_AGAIN: True})
        return lost

    def kept(self) -> Iterator[Mapping[str, Any]]:
        """Yield the attempts of earlier processes, each point once, and add their times."""
        for trial in self._trials(self._states.COMPLETE):
            place = self._place(trial.params)
            kept = trial.user_attrs.get(KEPT)
            if place is not None and kept is not None and place not in self.times:
                self._learn(place, float(trial.value or 0))
                yield kept

    def begin(self, place: Place) -> None:
        """Ask for a point first, unless an earlier process did."""
        self.study.enqueue_trial(self._params(place), skip_if_exists=True)

    def ask(self, unknown: Iterator[Place]) -> tuple[Trial, Place]:
        """Return a trial of an unknown point, and its place.

        ``unknown`` yields such points, for a sampler that proposes known points alone.
        """
        while True:
            if not self._trials(self._states.WAITING):
                self.study.enqueue_trial(self._params(self._proposed(unknown)))
            trial = self.study.ask(self._kinds)
            trial.set_user_attr(_OWNER, _this_process())
            place = self._place(trial.params)
            if place is not None and place not in self.times:
                return trial, place
            self.study.tell(trial, state=self._states.FAIL)

    def _proposed(self, unknown: Iterator[Place]) -> Place:
        """Return the next unknown point that the sampler proposes."""
        for _ in range(_REPEATS):
            trial = self._proposals.ask(self._kinds)
            place = tuple(int(trial.params[name]) for name in self.counts)
            if place not in self.times:
                # The point's time comes later, as a trial of its own.
                self._proposals.tell(trial, state=self._states.FAIL)
                return place
            self._proposals.tell(trial, self.times[place])
        return next(unknown)

    def tell(
        self, trial: Trial, place: Place, time: float, kept: Mapping[str, Any]
    ) -> None:
        """Keep the attempt at a point, and its time."""
        trial.set_user_attr(KEPT, kept)
        self.study.tell(trial, time, skip_if_finished=True)
        self._learn(place, time)

    def stop(self, trial: Trial, place: Place) -> None:
        """End a trial that a person stopped: the next process begins with its point."""
        self.study.tell(trial, state=self._states.FAIL, skip_if_finished=True)
        self.study.enqueue_trial(self._params(place))

    def add(self, place: Place, time: float, kept: Mapping[str, Any]) -> None:
        """Keep an attempt at a point without a running trial."""
        self.study.add_trial(self._complete_trial(place, time, {KEPT: kept}))
        self._learn(place, time)

    def _learn(self, place: Place, time: float) -> None:
        self.times[place] = time
        self._proposals.add_trial(self._complete_trial(place, time))

    def _complete_trial(
        self, place: Place, time: float, attributes: dict[str, Any] | None = None
    ) -> FrozenTrial:
        """Return a finished trial of Optuna for a point and its time."""
        from optuna.trial import create_trial

        return create_trial(
            value=time,
            params=self._params(place),
            distributions=self._kinds,
            user_attrs=attributes,
        )

    def _params(self, place: Place) -> dict[str, int]:
        return dict(zip(self.counts, place, strict=True))

    def _trials(self, state: Any) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=[state])

    def _place(self, params: Mapping[str, Any]) -> Place | None:
        """Return the place of a trial's point; None if the trial has no point yet."""
        if not params.keys() >= self.counts.keys():
            return None
        return tuple(int(params[name]) for name in self.counts)


def _this_process() -> list[Any]:
    return [platform.node(), os.getpid()]


def _is_alive(owner: Any) -> bool:
    """Return whether another live process on this computer has a trial's point.

    A process of another computer counts as ended. At worst, both judge the point.
    """
    if not owner or os.name != "posix":
        return False
    computer, process = owner
    if computer != platform.node() or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process exists and belongs to another user
        return True
    return True
