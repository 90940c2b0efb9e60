"""A replay runs in other orders, too: doubts about a candidate are settled as a kernel's are."""

import neuronxcc.nki.language as nl
import numpy as np

from difftest.analysis.inspection import Inspector
from difftest.simulator import launch
from difftest.simulator.launch_listeners import listening, recording_tapes
from difftest.simulator.replay import replay_tape
from tests.every import every


def scatter(a, places):
    """Each iteration stores four rows where the data say."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    column = nl.arange(16)[None, :]
    nl.store(out, nl.load(a))
    for turn in nl.affine_range(2):
        at = nl.load(places[turn])
        rows = nl.load(a[nl.ds(4 * turn, 4), :])
        nl.store(out[at[nl.arange(4)[:, None], 0], column], rows)
    return out


@every(
    "rows, ids",
    [([0, 2, 4, 6, 1, 3, 5, 7], []), ([0, 2, 4, 6, 1, 3, 5, 6], ["affine-order"])],
)
def test_the_turns_of_a_loop_run_in_another_order(rows, ids):
    arrays = [
        np.arange(128, dtype=np.float32).reshape(8, 16),
        np.array(rows, np.int32).reshape(2, 4, 1),
    ]
    with listening(None), recording_tapes() as tapes:
        launch(scatter, arrays)
    inspector = Inspector()
    with listening(inspector):
        launch(replay_tape(tapes[0]), arrays)
    assert [one.id for one in inspector.findings] == ids
