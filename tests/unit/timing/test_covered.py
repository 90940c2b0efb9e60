from difftest.timing.report import covered


def test_intervals_that_overlap_count_once():
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.7)]) == 4
    assert covered([]) == 0
