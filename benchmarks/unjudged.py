"""A rehearsal of another policy than ours, which keeps no promises of ours: a violated invariant does not end it."""

from __future__ import annotations

from tidemill.sim.scenario.rehearsal import Rehearsal


class UnjudgedRehearsal(Rehearsal):
    """`first`: the number of the first invariant that was violated; 0: none was."""

    first = 0

    def _stop_on(self, violation: object) -> None:
        self.first = self.first or getattr(violation, "invariant", 0)
