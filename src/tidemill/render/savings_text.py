"""Savings in words: the same lines in a rehearsal's verdict, in `status` and in `costs`."""

from __future__ import annotations

from tidemill.render.figures import usd
from tidemill.report.savings import Savings


def paid_line(money: Savings) -> str:
    """What the comparison is about; empty: nothing was paid for hours that are over."""
    if not money.paid_usd:
        return ""
    return f"paid {usd(money.paid_usd)} for hours that are over, {usd(money.idle_usd)} of it for idle ones"


def comparison_lines(money: Savings) -> list[str]:
    """The same work on demand, what was saved, and at which use it breaks even."""
    lines = []
    if money.on_demand_usd is not None and money.saved_usd is not None:
        word = "saved" if money.saved_usd >= 0 else "lost"
        about = f" of the {usd(money.compared_usd)} that can be compared" if money.unpriced else ""
        lines.append(
            f"the same work on demand: {usd(money.on_demand_usd)}; {word} {usd(abs(money.saved_usd))}{about}"
        )
        if money.break_even is not None and money.reached is not None:
            even = (
                f"breaks even at {_share(money.break_even)} use"
                if money.break_even <= 1
                else "dearer at any use"
            )
            lines.append(f"{even}; {_share(money.reached)} was reached")
    if money.unpriced:
        lines.append(f"no on-demand price is known for capacity of {', '.join(money.unpriced)}")
    return lines


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"
