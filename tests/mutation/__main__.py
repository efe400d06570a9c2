"""Wrong engines by the hundred: how many the checks of a rehearsal tell from the right one, and which not.

    python -m tests.mutation plans                 every kind of action: dropped, doubled, late, elsewhere
    python -m tests.mutation code --sample 200     one change of the code each, drawn by --seed
    python -m tests.mutation code --only decide/drain.py

A mutant is killed by an invariant, an exception, its time, or a verdict, a number of finished jobs or a bill that
differs from the right engine's. A survivor with "other actions" did something else, and no check minds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

from tests.mutation import code_mutants, plan_mutants
from tests.mutation.campaign import Row, run_code, run_plans


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("what", choices=["plans", "code"])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose path begins so")
    parser.add_argument("--all", action="store_true", help="with the packer and the planner")
    asked = parser.parse_args()
    if asked.what == "plans":
        rows = run_plans(plan_mutants.all_mutants(), tell=_tell)
    else:
        mutants = [
            one for one in code_mutants.all_mutants(everywhere=asked.all) if one.path.startswith(asked.only)
        ]
        drawn = sorted(Random(asked.seed).sample(mutants, min(asked.sample, len(mutants))))
        print(
            f"{len(mutants)} mutants can be made, {len(drawn)} are drawn with seed {asked.seed}", flush=True
        )
        rows = run_code(drawn, tell=_tell)
    _sum_up(rows)
    return 0


def _tell(row: Row) -> None:
    print(row, flush=True)


def _sum_up(rows: list[Row]) -> None:
    killed = Counter(row.fate.by for row in rows if row.fate is not None and row.fate.by)
    survived = [row for row in rows if row.fate is not None and not row.fate.by]
    print(f"\n{len(rows)} generated, {killed.total()} killed, {len(survived)} survived, ", end="")
    print(f"{sum(row.fate is None for row in rows)} reached by no scenario")
    for by, count in killed.most_common():
        print(f"  {count:4} by {by}")
    differing = Counter(row.fate.differs or "the same" for row in survived if row.fate is not None)
    print(f"  survivors: {dict(differing)}")


if __name__ == "__main__":
    sys.exit(main())
