"""What happened and what was decided, told line by line as a rehearsal goes on.

Reads the journal and the actions the engine took; knows no terminal and no clock of its own. What nobody
would miss is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.read_models import deadline_of
from tidemill.model.plan import (
    Action,
    Admit,
    CancelDrain,
    Launch,
    Plan,
    ProposePurchase,
    SettlePurchase,
    StartDrain,
    SubmitPurchase,
)
from tidemill.model.pods import Gang, Pod
from tidemill.render.actions_text import Weight, alike, in_words
from tidemill.render.figures import counted, span
from tidemill.render.names import DisplayNames
from tidemill.sim.scenario.rehearsal import Done, Rehearsal
from tidemill.sim.timeline import Line
from tidemill.spec.compute_pool import Provisioner
from tidemill.wording import sentence


@dataclass(frozen=True, slots=True)
class Told:
    at: datetime
    who: str  # engine | aws | people | work | fault
    words: str
    weight: Weight = Weight.ROUTINE


# Kinds of journal lines that are told: who speaks, and how much it matters. The others are left out.
_EVENTS: dict[str, tuple[str, Weight]] = {
    "block-active": ("aws", Weight.TURN),
    "block-scheduled": ("aws", Weight.NOTABLE),
    "block-purchased": ("aws", Weight.TURN),
    "block-payment-failed": ("aws", Weight.TURN),
    "block-extended": ("aws", Weight.NOTABLE),
    "block-expired": ("aws", Weight.NOTABLE),
    "verdict": ("people", Weight.TURN),
    "verdict-refused": ("people", Weight.NOTABLE),
    "engine-crashed": ("fault", Weight.TURN),
    "fault": ("fault", Weight.TURN),
    "job-submitted": ("work", Weight.ROUTINE),
    "job-started": ("work", Weight.ROUTINE),
    "job-finished": ("work", Weight.ROUTINE),
    "job-restarted": ("work", Weight.NOTABLE),
    "job-failed": ("work", Weight.NOTABLE),
    "checkpoint-done": ("work", Weight.NOTABLE),
    "node-check-failed": ("fault", Weight.NOTABLE),
    "service-ready": ("work", Weight.NOTABLE),
    "service-below-minimum": ("fault", Weight.TURN),
    "service-restored": ("work", Weight.NOTABLE),
}


# Reasons that pass by themselves within minutes.
_PASSING = ("starting", "launching")


class Narrator:
    """Tells each thing once: what came since the last call. Ask for news after every step."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._lines = self._done = 0
        self._draining: dict[str, datetime] = {}  # blocks with pods still to go -> their deadline
        self._holding: dict[str, str] = {}  # workload -> the code it was last said to wait for
        self._plan: Plan | None = None

    def news(self, names: DisplayNames) -> list[Told]:
        lines, done = self._rehearsal.journal.lines[self._lines :], self._rehearsal.done[self._done :]
        self._lines, self._done = len(self._rehearsal.journal.lines), len(self._rehearsal.done)
        # A fault is noted after what it stirred up; people expect the cause first.
        lines = sorted(lines, key=lambda line: (line.at, line.kind != "fault"))
        told = [one for line in lines for one in _event(line, names)]
        return [*told, *self._decisions(done, names), *self._held(names), *self._emptied(names)]

    def _decisions(self, done: list[Done], names: DisplayNames) -> Iterator[Told]:
        world = self._rehearsal.world
        pods = {pod.uid: pod for pod in world.pods} if world is not None and done else {}
        full_names = {uid: pod.full_name for uid, pod in pods.items()}
        for group in alike(one.action for one in done):
            came = next(one for one in done if one.action is group[0])
            words, weight = self._refined(group[0], came.error, pods) or in_words(group, full_names)
            if weight is Weight.TURN and isinstance(came.action, StartDrain | CancelDrain):
                self._note_drain(came.action)
            if words:
                yield Told(came.at, "engine", names.spoken(words), weight)

    def _refined(self, action: Action, error: str, pods: Mapping[str, Pod]) -> tuple[str, Weight] | None:
        """Where knowing what came before makes a better sentence; None: the action speaks for itself."""
        words, weight = in_words([action], {})
        match action:
            case Admit(pods=uids) if uids and uids[0] in pods:
                gang = pods[uids[0]].gang
                return self._gang_start(gang) if gang is not None else None
            case ProposePurchase(intent=intent):
                asked = [one for one in self._rehearsal.ledger.purchases() if one.window == intent.window]
                return in_words([action], {}, again=len(asked) > 1)
            case SettlePurchase(outcome="confirmed"):
                bought = counted(len(self._rehearsal.cloud.purchases), "purchase")
                return f"{words}; {bought} in all, nothing twice", weight
            case SubmitPurchase() | Launch() if error:
                return f"{words} -> {error}", Weight.NOTABLE
            case SubmitPurchase():
                return "", Weight.ROUTINE  # AWS tells it
        return None

    def _gang_start(self, gang: Gang) -> tuple[str, Weight]:
        job = self._rehearsal.cluster.jobs.get(gang.name)
        again = " again, whole" if job is not None and job.restarts else ""
        return f"starts gang {gang.name}{again}: all {gang.size} pods at once", Weight.TURN

    def _held(self, names: DisplayNames) -> Iterator[Told]:
        """Work that cannot start, told once per workload and kind of reason."""
        plan, world = self._rehearsal.plan, self._rehearsal.world
        if plan is self._plan or world is None:
            return
        self._plan = plan
        pods = {pod.uid: pod for pod in world.pods} if plan.unmet else {}
        holding: dict[str, str] = {}
        for one in plan.unmet:
            pod = pods.get(one.pod)
            workload = (pod.workload if pod else "") or one.name
            if one.code in _PASSING or workload in holding:
                continue
            holding[workload] = one.code
            if self._holding.get(workload) != one.code:
                words = f"holds {workload.rsplit('/', 1)[-1]}: {sentence(one.reason)}"
                yield Told(world.now, "engine", names.spoken(words), Weight.NOTABLE)
        self._holding = holding

    def _note_drain(self, action: StartDrain | CancelDrain) -> None:
        """Watch for the last pod to leave the block of this node, or no longer."""
        world = self._rehearsal.world
        nodes = world.nodes if world is not None else ()
        instance = next((one.instance for one in nodes if one.name == action.node), None)
        block = self._rehearsal.cloud.reservation(instance.source.id) if instance is not None else None
        if instance is None or block is None:
            return
        deadline = deadline_of(block, Provisioner(instance.provisioner or Provisioner.NATIVE))
        self._draining.pop(block.id, None)
        if isinstance(action, StartDrain) and deadline is not None:
            self._draining[block.id] = deadline

    def _emptied(self, names: DisplayNames) -> Iterator[Told]:
        """A drain's happy end: the last pod left before the deadline."""
        for id_, deadline in list(self._draining.items()):
            at = self._rehearsal.cluster.emptied_at(id_)
            if at is not None:
                del self._draining[id_]
                words = f"block {names.block(id_)} is empty, {span(deadline - at)} before its deadline"
                yield Told(self._rehearsal.timeline.now(), "engine", words, Weight.TURN)


def _event(line: Line, names: DisplayNames) -> Iterator[Told]:
    who, weight = _EVENTS.get(line.kind, ("", Weight.ROUTINE))
    words = _event_words(line) if who else ""
    if words:
        yield Told(line.at, who, names.spoken(words), weight)


def _event_words(line: Line) -> str:
    about, text = line.about, line.text
    match line.kind:
        case "block-active":
            return f"{about} is delivered: {text}"
        case "block-purchased":
            return f"sells {text}"
        case "verdict" | "verdict-refused":
            return text
        case "engine-crashed":
            return _crash(line.crash_step)
        case "fault" if about == "engine-crash":
            return ""  # it is armed; the crash is told when it strikes
        case "fault" if about == "node-dies":
            return f"{', '.join(line.hit)} dies: its host failed" if line.hit else ""
        case "fault":
            return text
        case "checkpoint-done":
            return f"{about.rsplit('/', 1)[-1]} has written its checkpoint"
        case "job-submitted":
            return f"{about} arrives: {text}"
        case "job-started":
            return f"{about} runs"
        case _:
            return f"{about}: {text}"


def _crash(step: str) -> str:
    """At `after:purchase`: between the call and writing down what came of it."""
    side, _, call = step.partition(":")
    where = f" right {side} its {call} call" if call else ""
    return f"the engine crashes{where}; a new one starts, knowing only what is written down"
