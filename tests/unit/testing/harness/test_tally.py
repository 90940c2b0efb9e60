from difftest.testing.harness.tally import Counts, Tally, tally_from_json
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
)
from difftest.testing.report.totals import total_of

ERROR = ValueError("no")


def counted():
    tally = Tally()
    tally.count("add", "plain", Match(elements=5, exact=True))
    tally.count("add", "plain", Match(elements=7, exact=False, nonfinite=2))
    tally.count(
        "add", "plain", Mismatch(kind="value", output=0, message="", elements=3)
    )
    tally.count("add", "plain", BothRejected(ERROR, ERROR))
    tally.count("add", "other", Inconclusive("vague"))
    tally.count("add", "other", OneSided("kernel", ERROR))
    tally.rows["add", "other"].rejections += 1
    tally.agreements["add", "sub", "plain"] = Counts(cases=3, exact=2)
    tally.coverage.add_function("add", [("add.py", 7, True), ("add.py", 9, False)])
    tally.coverage.covered.add(("add.py", 7, 1))
    tally.coverage.unknown.add("why")
    return tally


def test_counts_by_kernel_and_backend():
    assert counted().rows == {
        ("add", "plain"): Counts(4, 15, nonfinite=2, exact=1, both_rejected=1),
        ("add", "other"): Counts(cases=2, inconclusive=1, rejections=1),
    }
    assert counted().reasons == {"add: vague": 1}


def test_finite_elements_and_demanded_rejections_alone_check_something():
    tally = Tally()
    assert tally.nothing_compared
    tally.count("add", "plain", BothRejected(ERROR, ERROR))
    tally.count("add", "plain", Inconclusive("vague"))
    assert tally.nothing_compared.endswith(
        "to a comparison, of add on plain\n  add: vague"
    )
    tally.rows["add", "plain"].rejections += 1
    assert not tally.nothing_compared
    # one backend does not speak for another
    tally.count("add", "other", Inconclusive("vague"))
    assert "of add on other" in tally.nothing_compared
    tally.count("add", "other", Match(elements=1, exact=False, nonfinite=7))
    assert not tally.nothing_compared


def test_json_comes_back():
    assert tally_from_json(counted().to_json()) == counted()


def test_merging_tallies_adds_their_counts():
    total = counted()
    total.merge(counted())
    assert total.rows["add", "plain"] == Counts(
        8, 30, nonfinite=4, exact=2, both_rejected=2
    )
    assert total.agreements == {("add", "sub", "plain"): Counts(cases=6, exact=4)}
    other = Tally()
    other.merge(counted())
    assert other == counted()


def test_kernels_of_one_name_stay_apart_in_the_sum():
    """By the modules that define them; a name that is unique stays as it is."""
    tallies = []
    for name, home in (
        ("add", "here"),
        ("add", "there"),
        ("add", "here"),
        ("matmul", "here"),
    ):
        tally = Tally()
        tally.homes[name] = home
        tally.count(name, "embedded", Match(elements=4, exact=True))
        tallies.append(tally)
    counted = {kernel: row.cases for (kernel, _), row in total_of(tallies).rows.items()}
    assert counted == {"add (here)": 2, "add (there)": 1, "matmul": 1}
