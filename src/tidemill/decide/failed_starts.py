"""Nodes that never become Ready: one is tried at a time, ever later, so that a broken image burns no money.

One that fails is replaced at once: machines do break. Several in a row, of one pool and type and made from the same
NodeClass, are no bad luck: the next would fail likewise and cost its quarter of an hour. Whatever the cause was (the
image, an access entry, a route to the API server), one node that becomes Ready shows that it is mended, and so may a
changed NodeClass: then everything is as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.model.capacity import PREPAID, SourceKind
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.model.reasons import TerminateReason
from tidemill.spec import names

# So many at once, or two times one after the other, are no bad luck any more.
TRIED_ALONE_AFTER = 3
# After the second time 5 minutes, then 10, 20, 40 and at most an hour. Nodes of a block cost nothing more, and its time
# runs out whether they are tried or not.
FIRST_REST = timedelta(minutes=5)
LONGEST_REST = timedelta(hours=1)
LONGEST_PREPAID_REST = timedelta(minutes=10)
ROW_ENDS = 2 * LONGEST_REST

PoolType = tuple[str, str]  # a pool and an instance type
_STARTING = (Phase.LAUNCHED, Phase.JOINED, Phase.REGISTERING, Phase.VERIFYING)


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """All that a pool launched of a type since the last node that became Ready failed: so many, the last then."""

    count: int
    times: (
        int  # one after the other: nodes that were launched before the first of them had failed are one time
    )
    last_at: datetime
    tried_now: bool  # another one is starting

    @property
    def tried_alone(self) -> bool:
        return self.times > 1 or self.count >= TRIED_ALONE_AFTER

    def rests_until(self, source: SourceKind) -> datetime:
        if self.times < 2:
            return self.last_at
        longest = LONGEST_PREPAID_REST if source in PREPAID else LONGEST_REST
        return self.last_at + min(FIRST_REST * 2.0 ** min(self.times - 2, 10), longest)


def failed_start(
    view: NodeView, template: PoolTemplate | None, reason: TerminateReason, now: datetime
) -> LaunchIntent | None:
    """What is written down of a node that is given up before it was ever Ready; None: it was, or nobody asks."""
    instance, kube = view.node.instance, view.node.kube
    if instance is None or template is None or (kube is not None and kube.opened_at is not None):
        return None
    return LaunchIntent(
        id=f"start-{instance.id}",
        pool=instance.pool,
        source=instance.source,
        instance_type=instance.instance_type,
        zone=instance.zone,
        count=1,
        provisioner=instance.provisioner,
        written_at=instance.launched_at,
        state=LaunchState.NEVER_READY,
        state_at=now,
        instance_ids=(instance.id,),
        failure=reason.kind.value,
        node_class=template.made_from,
    )


def failed_starts(
    failed: Iterable[tuple[LaunchIntent, PoolTemplate]],
    views: Sequence[NodeView],
    unseen: Iterable[LaunchIntent],
) -> dict[PoolType, FailedStarts]:
    """`failed`: nodes that never became Ready, each with the template of its pool; `unseen`: launches on their way."""
    by_type: dict[PoolType, list[LaunchIntent]] = {}
    for intent, template in failed:
        if intent.node_class == template.made_from:
            by_type.setdefault((intent.pool, intent.instance_type), []).append(intent)
    if not by_type:
        return {}
    good: dict[PoolType, datetime] = {}
    starting = {(intent.pool, intent.instance_type) for intent in unseen}
    for view in views:
        key = view.facts.counted
        opened = _opened_at(view)
        if key not in by_type:
            continue
        if opened is not None:
            good[key] = max(opened, good.get(key, opened))
        elif view.phase in _STARTING and not view.ending:
            starting.add(key)
    found = {}
    for key, intents in by_type.items():
        since = good.get(key)
        in_a_row = _last_row([one for one in intents if since is None or one.written_at > since])
        if in_a_row:
            last_at = max(one.state_at or one.written_at for one in in_a_row)
            found[key] = FailedStarts(len(in_a_row), _times(in_a_row), last_at, key in starting)
    return found


def _last_row(intents: list[LaunchIntent]) -> list[LaunchIntent]:
    """Nodes that became Ready meanwhile may be gone again, and then nothing shows them: what was launched long after
    the failure before it begins a new row. Whoever still needs nodes tries sooner."""
    row: list[LaunchIntent] = []
    for one in sorted(intents, key=lambda one: one.written_at):
        if row and one.written_at > max(before.state_at or before.written_at for before in row) + ROW_ENDS:
            row = []
        row.append(one)
    return row


def _opened_at(view: NodeView) -> datetime | None:
    """When a node became Ready that is made from what its pool is made from today."""
    kube, template = view.node.kube, view.facts.template
    if kube is None or template is None or view.phase not in (Phase.READY, Phase.DRAINING):
        return None
    made_from = view.facts.labels.get(names.LABEL_NODE_CLASS, template.made_from)
    if made_from != template.made_from:
        return None
    return kube.opened_at or kube.accelerators_registered_at or kube.joined_at


def _times(intents: list[LaunchIntent]) -> int:
    times, known_at = 0, None
    for one in sorted(intents, key=lambda one: one.written_at):
        failed_at = one.state_at or one.written_at
        if known_at is None or one.written_at > known_at:
            times, known_at = times + 1, failed_at
        else:
            known_at = min(known_at, failed_at)
    return times
