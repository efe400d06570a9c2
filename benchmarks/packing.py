"""How fast and how well are pods packed? Every mix at several sizes, with ratios that hold on every machine.

    python -m benchmarks.packing [--mix NAME ...] [--pods 1000 5000 20000] [--reference 1000] [--json]

`linear` is the pods/s over those of the mix's 5,000 (or its smallest size): near 1 is linear growth. `nodes` and
`price` of plain first-fit, which tries every node in turn, are printed beside ours at the sizes of --reference.
Exits 1 if a solution breaks a rule or leaves a pod unplaced that would fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

from benchmarks.mixes import MIXES
from benchmarks.packing_run import Packing, measure

SIZES = (1_000, 5_000, 20_000)
LARGEST = 100_000  # of the first mix, which is the one others publish figures of
HEAD = "mix             pods    pods/s  linear  nodes        $/h   bound  first-fit            checked"


@dataclass(frozen=True, slots=True)
class Row:
    ours: Packing
    reference: Packing | None

    @property
    def sound(self) -> bool:
        return self.ours.checked and not self.ours.overlooked


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mix", nargs="*", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--pods", nargs="*", type=int)
    parser.add_argument("--reference", nargs="*", type=int, default=[1_000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[Row] = []
    if not arguments.json:
        print(HEAD)
    for mix in arguments.mix:
        sizes = arguments.pods or ((*SIZES, LARGEST) if mix == "karpenter" else SIZES)
        of_mix = [
            _row(mix, pods, arguments.seed, with_reference=pods in arguments.reference) for pods in sizes
        ]
        rows += of_mix
        if not arguments.json:
            _print(of_mix)
    if arguments.json:
        print(json.dumps([_document(row) for row in rows], indent=2))
    return 0 if all(row.sound for row in rows) else 1


def _row(mix: str, pods: int, seed: int, *, with_reference: bool) -> Row:
    solvers = ("tidemill", "first-fit") if with_reference else ("tidemill",)
    results = measure(mix, pods, seed=seed, repeat=3 if pods <= 20_000 else 1, solvers=solvers)
    return Row(results[0], results[1] if with_reference else None)


def _print(rows: list[Row]) -> None:
    base = next((row.ours for row in rows if row.ours.pods == 5_000), rows[0].ours)
    for row in rows:
        ours = row.ours
        over = f"{ours.price / ours.lower_bound - 1:+.1%}" if ours.lower_bound and not ours.unplaced else "-"
        print(
            f"{ours.mix:<12}{ours.pods:>8,}{ours.pods_per_s:>10,.0f}{ours.pods_per_s / base.pods_per_s:>8.2f}"
            f"{ours.nodes:>7,}{ours.price:>11,.2f}{over:>8}  {_beside(row):<20} {'yes' if row.sound else 'NO'}",
            flush=True,
        )


def _beside(row: Row) -> str:
    if row.reference is None:
        return ""
    nodes = f"{row.reference.nodes:,} nodes"
    return f"{nodes}, ${row.reference.price:,.2f}"


def _document(row: Row) -> dict[str, object]:
    keys = (
        "mix",
        "pods",
        "seed",
        "pods_per_s",
        "nodes",
        "price",
        "lower_bound",
        "unplaced",
        "overlooked",
        "checked",
    )
    document: dict[str, object] = {key: getattr(row.ours, key) for key in keys}
    if row.reference is not None:
        document["first_fit"] = {"nodes": row.reference.nodes, "price": row.reference.price}
    return document


if __name__ == "__main__":
    sys.exit(main())
