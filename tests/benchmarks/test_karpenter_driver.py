"""The comparison with Karpenter's benchmark, as far as it can be tested without Go."""

import pytest

from benchmarks import karpenter
from benchmarks.karpenter import CannotRun, Packed, Row

OUTPUT = """\
goos: linux
pkg: sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling
BenchmarkScheduling1000-2 \t 1\t4190930498 ns/op\t 200.0 nodes\t 1000 pods\t 238.6 pods/sec\t 344.6 price
PASS
"""


def packed(**changes: object) -> Packed:
    told = {"pods": 1000, "pods_per_s": 200.0, "nodes": 200, "price": 300.0, "cpu_s": 5.0}
    return Packed(**(told | changes))  # type: ignore[arg-type]


def test_reads_speed_nodes_and_price_from_the_benchmark_line():
    figures = karpenter.karpenter_figures(OUTPUT, 1000, cpu_s=5.0)
    assert figures == packed(pods_per_s=238.6, price=344.6)
    assert figures.price_per_pod == pytest.approx(0.3446)


def test_reads_a_line_without_the_number_of_cpus():
    assert karpenter.karpenter_figures(OUTPUT.replace("1000-2", "1000"), 1000, cpu_s=5.0).nodes == 200


def test_a_line_of_another_size_is_not_read():
    with pytest.raises(CannotRun, match="no benchmark of 100 pods"):
        karpenter.karpenter_figures(OUTPUT, 100, cpu_s=5.0)


def test_a_speed_with_unplaced_pods_is_refused():
    short = OUTPUT.replace("1000 pods\t", "900 pods\t")
    with pytest.raises(CannotRun, match="placed 900 of 1,000"):
        karpenter.karpenter_figures(short, 1000, cpu_s=5.0)


@pytest.mark.parametrize(
    ("flaw", "why"), [({"checked": False}, "checker objects"), ({"placed": 900}, "placed 900 of 1,000")]
)
def test_a_speed_of_ours_with_a_wrong_solution_is_refused(flaw, why):
    written_solution = {"pods_per_s": 1e6, "nodes": 200, "price": 250.0, "placed": 1000, "checked": True}
    assert karpenter.tidemill_figures(written_solution, 1000, cpu_s=1.0).pods_per_s == 1e6
    with pytest.raises(CannotRun, match=why):
        karpenter.tidemill_figures(written_solution | flaw, 1000, cpu_s=1.0)


def test_the_newest_release_is_by_number_and_never_a_pre_release():
    assert karpenter.newest(["v0.37.0", "v1.9.0", "v1.15.0", "v1.16.0-rc.1", "v2.0.0"]) == "v1.15.0"


def test_a_newer_patch_release_of_go_is_waived_and_a_newer_minor_is_not():
    assert karpenter.go_directive("1.26.9", "1.26.8") == "1.26.8"
    assert karpenter.go_directive("1.26.0", "1.26.8") is None
    with pytest.raises(CannotRun, match=r"needs Go 1\.27\.0"):
        karpenter.go_directive("1.27.0", "1.26.8")


def test_the_price_is_added_after_the_timed_part_and_an_unknown_file_is_refused():
    known = "".join(line for line, _ in karpenter.HOOKS)
    assert karpenter.hooked(known) == "".join(line + ours for line, ours in karpenter.HOOKS)
    with pytest.raises(CannotRun, match="has changed"):
        karpenter.hooked("package scheduling_test\n")


def test_prints_the_ratio_and_both_prices():
    ours = packed(pods_per_s=40_000.0, price=210.0)
    row = Row(1000, load=0.5, karpenter=packed(), tidemill=ours)
    assert karpenter.cells(row) == [
        "1,000", "200", "40,000", "200x", "200", "200", "0.3000", "0.2100", "0.5",
    ]  # fmt: skip


def test_a_side_that_could_not_run_is_a_dash_and_gives_no_ratio():
    row = Row(1000, load=0.5, karpenter=packed(), tidemill=None)
    assert row.ratio is None
    assert karpenter.cells(row)[2:4] == ["-", "-"]


def test_the_median_round_counts():
    speeds = iter([100.0, 900.0, 300.0])
    chosen = karpenter.median_of(3, lambda: packed(pods_per_s=next(speeds)), "karpenter", 1000)
    assert chosen == packed(pods_per_s=300.0)
