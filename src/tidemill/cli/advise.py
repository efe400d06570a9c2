"""`tidemill advise`: which provisioner fits each pool, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidemill.report.advice_on_provisioners import PoolAdvice


@click.command(short_help="Say which provisioner fits each pool, and why.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--pool", metavar="NAME", help="Only this pool.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def advise(files: tuple[str, ...], pool: str | None, as_json: bool) -> None:
    """Say which provisioner fits each pool: native, asg, managed or karpenter, and why.

    Judged from the documents alone: sources, types, node class, the Karpenter of the platform, and the jobs of a
    Scenario if there is one. Nothing is changed: a pool changes its provisioner by one line.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.model.errors import SpecError
    from tidemill.report.advice_on_provisioners import advise as advice_on
    from tidemill.spec.problem import suggestion

    spec, scenario = load_spec(files)
    if pool is not None and pool not in spec.pools:
        raise SpecError(f"there is no pool '{pool}'; {suggestion(pool, spec.pools)}")
    found = [each for each in advice_on(spec, scenario) if pool in (None, each.pool)]
    if not found:
        raise SpecError("there is no ComputePool in the documents")
    if as_json:
        click.echo(json.dumps({"pools": [each.as_json() for each in found]}, indent=2))
        return
    click.echo("\n\n".join(_advice_text(each) for each in found))


def _advice_text(advice: PoolAdvice) -> str:
    best = advice.best.provisioner.value
    head = f"{advice.pool}: {best}" + ("" if advice.now == best else f" (now: {advice.now.value})")
    lines = [head]
    for each in advice.judged:
        reasons = [
            *(f"+ {one}" for one in (() if each.rules_out else each.favours)),
            *(f"- {one}" for one in (() if each.rules_out else each.costs)),
            *(f"x {one}" for one in each.rules_out),
        ]
        lines.append(f"  {each.provisioner.value:<10} {each.fit}")
        lines += [f"    {reason}" for reason in reasons]
    return "\n".join(lines)
