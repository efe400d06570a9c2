"""Plan -> ports: one Outcome per action, and one failing action never stops the others.

Order matters inside an action, never between actions: an intent is written before its call, and what came
of the call is written after it. A crash between the two is what the next decision reconciles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import assert_never

from tidemill.engine.buyer import Buyer
from tidemill.engine.rests import Rests
from tidemill.model.errors import Gone, NotYet, OutcomeUnknown, PortError, Refused, TidemillError, label
from tidemill.model.plan import (
    Action,
    Admit,
    AnnounceEnd,
    AnnounceNodeEnd,
    CancelDrain,
    Evict,
    ForceDelete,
    KeepForJobs,
    Launch,
    MarkReady,
    Outcome,
    Plan,
    ProposePurchase,
    Recreate,
    RemoveNode,
    RequestCheckpoint,
    RestartWorkload,
    ScaleWorkload,
    SearchExtensions,
    SearchOffers,
    SettleLaunch,
    SettlePurchase,
    StartDrain,
    SubmitPurchase,
    Terminate,
    Warning,
)
from tidemill.model.pods import LetGo, TakenBack
from tidemill.model.purchase_reasons import PurchaseWarning, PurchaseWarningKind
from tidemill.model.purchases import LaunchIntent, LaunchState, PurchaseState
from tidemill.model.reasons import RecreateKind, TerminateKind
from tidemill.ports import Clock, Cloud, Cluster, Ledger
from tidemill.spec import Spec, names

# The last words of a machine that never became a node, as they are told in an alert.
CONSOLE_LINES, CONSOLE_CHARACTERS = 20, 2_000
# Longer than the longest rest between two attempts to admit the same.
TAKEN_BACK_FORGOTTEN = timedelta(hours=1)
# A node that Karpenter was left to launch is listed long before.
LET_GO_FORGOTTEN = timedelta(minutes=10)
ONE_TIME = timedelta(seconds=2)
# It looks every few seconds; a purchaser that starts anew, or takes over, needs a minute.
PURCHASER_TRIES_WITHIN = timedelta(minutes=5)


class Actor:
    def __init__(
        self, spec: Spec, clock: Clock, cloud: Cloud, cluster: Cluster, ledger: Ledger,
        lacks: Callable[[str], Sequence[str]] = lambda pool: (), *, buys: bool = True,
    ) -> None:  # fmt: skip
        """`lacks`: as the buyer's. `buys`: False where another process submits purchases."""
        self._spec = spec
        self._clock, self._cloud, self._cluster, self._ledger = clock, cloud, cluster, ledger
        self.buyer = Buyer(spec, clock, cloud, ledger, lacks)
        self.rests = Rests(clock)
        self._buys = buys
        self._left: dict[
            str, datetime
        ] = {}  # purchases that are left to the purchaser, by intent: since when
        self._taken_back: dict[str, TakenBack] = {}  # by workload
        self._let_go: dict[str, LetGo] = {}  # likewise

    def carry_out(self, plan: Plan, go_on: Callable[[], bool] = lambda: True) -> tuple[Outcome, ...]:
        """Once `go_on` says no, what is left of the plan is not begun and has no outcome. Nor has a write that
        rests."""
        self.rests.follow(plan.actions)
        if not self._buys:
            self._leave_purchases(plan)
        return tuple(
            self._attempt(action)
            for action in takewhile(lambda _: go_on(), plan.actions)
            if not self.rests.rests(action) and (self._buys or not isinstance(action, SubmitPurchase))
        )

    # --- purchases that another process submits ---

    def _leave_purchases(self, plan: Plan) -> None:
        now = self._clock.now()
        due = [action.intent.id for action in plan.actions if isinstance(action, SubmitPurchase)]
        self._left = {id_: self._left.get(id_, now) for id_ in due}

    @property
    def waits_for_purchaser(self) -> bool:
        """A purchase is due, and what comes of it is seen in the ledger alone."""
        return bool(self._left)

    def purchaser_warnings(self) -> tuple[Warning, ...]:
        """Of what has been due for long: a purchaser looks every few seconds."""
        now = self._clock.now()
        return tuple(
            Warning(id_, PurchaseWarning(PurchaseWarningKind.NOT_TRIED, id_))
            for id_, since in self._left.items()
            if now - since >= PURCHASER_TRIES_WITHIN
        )

    @property
    def taken_back(self) -> tuple[TakenBack, ...]:
        """In a row: once it is long ago, it is forgotten. So is all of it when the engine ends, which costs one more
        attempt."""
        now = self._clock.now()
        self._taken_back = {
            workload: back
            for workload, back in self._taken_back.items()
            if now - back.last_at < TAKEN_BACK_FORGOTTEN
        }
        return tuple(self._taken_back.values())

    @property
    def let_go(self) -> tuple[LetGo, ...]:
        """Lately: a node that Karpenter has not launched by then is not coming."""
        now = self._clock.now()
        self._let_go = {name: one for name, one in self._let_go.items() if now - one.at < LET_GO_FORGOTTEN}
        return tuple(self._let_go.values())

    def _note_taken_back(self, workload: str) -> None:
        """All pods of a gang at one instant are one time."""
        now = self._clock.now()
        back = self._taken_back.get(workload)
        if back is None or now - back.last_at > ONE_TIME:
            self._taken_back[workload] = TakenBack(workload, 1 + (back.times if back else 0), now)

    def _attempt(self, action: Action) -> Outcome:
        try:
            detail = self._do(action)
        except Gone as gone:
            self.rests.was_done(action)
            return Outcome(action, detail=f"already gone: {gone}")
        except TidemillError as error:
            if isinstance(error, Refused):
                self.rests.was_refused(action)
            return Outcome(action, label(error), str(error))
        self.rests.was_done(action)
        return Outcome(action, detail=detail)

    def _do(self, action: Action) -> str:
        cluster = self._cluster
        match action:
            case SearchOffers(query):
                return self.buyer.search(query)
            case SearchExtensions(query):
                return self.buyer.search_extensions(query)
            case ProposePurchase(intent):
                self._ledger.propose(intent)
            case SubmitPurchase(intent):
                return self.buyer.submit(intent)
            case SettlePurchase(intent, outcome, ids, fee_usd, reason):
                settled = replace(
                    intent, state=(state := PurchaseState(outcome)),
                    # Found: its money left when it was submitted, which may have been in another month.
                    state_at=intent.state_at if state is PurchaseState.CONFIRMED else self._clock.now(),
                    reservation_ids=ids, fee_usd=fee_usd, reason=reason, note="",
                )  # fmt: skip
                self._ledger.advance(intent, settled)
            case Launch(intent):
                return self._launch(intent)
            case SettleLaunch(intent_id, failure=failure, short=short):
                self._settle(intent_id, failure, short)
            case Admit(pods, source_label, ends_at, pool=pool, workload=workload):
                cluster.admit(pods, source_label, ends_at, pool)
                if workload:
                    self._let_go[workload] = LetGo(workload, self._clock.now())
            case MarkReady(node):
                cluster.mark_ready(node)
            case StartDrain(node, reason):
                cluster.start_drain(node, reason)
            case CancelDrain(node):
                cluster.cancel_drain(node)
            case KeepForJobs(node, ends_at):
                cluster.keep_for_jobs(node, ends_at)
            case AnnounceEnd(pod, ends_at):
                cluster.announce_end(pod, ends_at)
            case AnnounceNodeEnd(node, ends_at):
                cluster.announce_node_end(node, ends_at)
            case RequestCheckpoint(pod):
                cluster.request_checkpoint(pod)
            case Evict(pod):
                if not cluster.evict(pod):
                    raise Refused("a disruption budget forbids it now")
            case ForceDelete(pod, grace_s):
                cluster.delete(pod, grace_s, disruption=True)
            case Recreate(pod, reason, workload):
                cluster.delete(pod, None, disruption=True)
                if reason.kind is RecreateKind.NO_ROOM_LEFT:
                    self._note_taken_back(workload)
            case RestartWorkload(workload, token):
                cluster.restart(workload, token)
            case ScaleWorkload(workload, replicas, added, going):
                cluster.scale(workload, replicas, added, going)
            case Terminate(instance_id, reason, failed_start):
                if reason.kind is TerminateKind.DRAINED and not cluster.is_empty(instance_id):
                    raise NotYet(f"a pod may be on its way to {instance_id}")
                printed = self._last_lines(instance_id) if failed_start is not None else ""
                self._cloud.terminate(instance_id)
                if failed_start is not None:  # afterwards: an instance ends even while the ledger is away
                    self._ledger.write_launch(failed_start)
                return printed
            case RemoveNode(node):
                cluster.remove_node(node)
            case _:
                assert_never(action)
        return ""

    def _last_lines(self, instance_id: str) -> str:
        """Of its console, for people who look for the reason. It is no reason to keep it."""
        try:
            printed = self._cloud.console_output(instance_id)
        except TidemillError as error:
            return f"its console could not be read: {error}"
        lines = printed.splitlines()[-CONSOLE_LINES:]
        return "\n".join(lines)[-CONSOLE_CHARACTERS:]

    # --- launches ---

    def _launch(self, intent: LaunchIntent) -> str:
        now = self._clock.now()
        intent = replace(intent, state=LaunchState.WRITTEN, state_at=now)
        self._ledger.write_launch(intent)
        tags = (
            (names.TAG_OWNER, self._spec.platform.spec.deployment),
            (names.TAG_POOL, intent.pool),
            (names.TAG_INTENT, intent.id),
            (names.TAG_PROVISIONER, intent.provisioner),
        )
        try:
            ids = tuple(self._cloud.launch(intent, tags))
        except OutcomeUnknown:
            raise  # stays written: the same id is tried again, and cannot launch twice
        except (PortError, Refused) as error:
            failed = replace(intent, state=LaunchState.FAILED, failure=label(error), answer=str(error))
            self._ledger.write_launch(failed)
            raise
        if not ids:
            self._ledger.write_launch(replace(intent, state=LaunchState.ASKED))
            return f"a group was asked for {intent.count}"
        self._ledger.write_launch(replace(intent, state=LaunchState.LAUNCHED, instance_ids=ids))
        return f"{len(ids)} of {intent.count}: {', '.join(ids)}"

    def _settle(self, intent_id: str, failure: str, short: tuple[str, ...]) -> None:
        state = LaunchState.SHORT if short else LaunchState.FAILED if failure else LaunchState.SETTLED
        for intent in self._ledger.launches():
            if intent.id == intent_id:
                ids = short or intent.instance_ids
                now = self._clock.now()
                settled = replace(intent, state=state, state_at=now, failure=failure, instance_ids=ids)
                self._ledger.write_launch(settled)
