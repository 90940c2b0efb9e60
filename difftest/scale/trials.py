"""The trials of a tuner in a study of Optuna's, which may outlive the process that asks for them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

Place: TypeAlias = tuple[int, ...]
"""Of a point: its place on each axis."""
_OWNER, _AGAIN = "process", "asked again"
"""Attributes of a trial: who looks at its point; whether another process ended at that point."""
KEPT = "attempt"
"""The attribute of a trial that holds what is known of its point."""


class Trials:
    """Trials over axes of so many values each; ``times`` is what Optuna was told, by place.

    A process that is killed leaves a trial that runs for ever. The next process fails that trial
    and asks for its point once more. A point at which two processes have ended is not asked again.
    """

    def __init__(self, study: Study, counts: Mapping[str, int]) -> None:
        from optuna.distributions import IntDistribution
        from optuna.trial import TrialState

        self.study = study
        self.counts = counts
        self.times: dict[Place, float] = {}
        self._states = TrialState
        self._kinds: Any = {name: IntDistribution(0, n - 1) for name, n in counts.items()}

    def resume(self, ended: Mapping[str, Any], worst: float) -> Iterator[Mapping[str, Any]]:
        """Yield what earlier processes kept of each point, and settle trials that they left.

        ``ended`` is kept of a point at which two processes ended, with ``worst`` as its time.
        """
        states = [self._states.COMPLETE, self._states.RUNNING]
        stale: list[FrozenTrial] = []
        for trial in self.study.get_trials(deepcopy=False, states=states):
            if trial.state is self._states.COMPLETE:
                if (kept := trial.user_attrs.get(KEPT)) and self._learn(trial, trial.value or 0.0):
                    yield kept
            elif not _is_alive(trial.user_attrs.get(_OWNER)):
                stale.append(trial)
        for trial in stale:
            if trial.params.keys() >= self.counts.keys() and self._place(trial) not in self.times:
                if (kept := self._settled(trial, ended, worst)) is not None:
                    yield kept
            self.study.tell(trial.number, state=self._states.FAIL, skip_if_finished=True)

    def _settled(
        self, trial: FrozenTrial, ended: Mapping[str, Any], worst: float
    ) -> Mapping[str, Any] | None:
        """Complete a trial whose process ended, or ask for its point again; what is kept of it."""
        kept: Mapping[str, Any] | None = trial.user_attrs.get(KEPT)
        if kept is None and not trial.user_attrs.get(_AGAIN):
            self.enqueue(self._place(trial), again=True)
            return None
        if kept is None:
            kept = {**ended, "point": self._place(trial)}
        return kept
