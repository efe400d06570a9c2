"""Structured logs: one line for each action with the tick and the reason, as JSON or for a terminal.

The engine and the adapters use the standard library's logging; their lines pass through the same renderer and carry
the tick too. Repetitions are counted, not printed: an action that fails every five seconds is told every five minutes.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import structlog

from tidemill.controller.loop import TickReport
from tidemill.model.plan import Action, Launch, Outcome, Warning
from tidemill.model.world import World
from tidemill.wording import sentence

Format = Literal["json", "console"]

REPEAT_EVERY_S = 300.0
_MOST_KNOWN = 10_000

log = structlog.stdlib.get_logger("tidemill.controller")


def configure_logs(style: Format, level: int = logging.INFO) -> None:
    """All logs of the process go to stderr, one line each."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    last: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if style == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries
    logging.getLogger("tidemill").setLevel(level)
    # It tells of failed actions, and so does the reporter below, with the reason.
    logging.getLogger("tidemill.engine.loop").setLevel(max(level, logging.WARNING))


def subject_of(action: Action, known: Mapping[str, str] | None = None) -> str:
    """What an action is about: a pod, a node, an instance, a workload, a pool or a purchase.

    `known`: `names_in` the world. What is not there keeps its uid or id.
    """
    known = known or {}
    if isinstance(action, Launch):
        return f"{action.intent.pool} {action.intent.instance_type} x {action.intent.count}"
    for name in ("pod", "node", "instance_id", "workload", "intent_id"):
        if value := str(getattr(action, name, "")):
            return known.get(value, value)
    if pods := getattr(action, "pods", ()):
        shown = ", ".join(known.get(uid, uid) for uid in pods[:3])
        return shown + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
    intent = getattr(action, "intent", None)
    query = getattr(action, "query", None)
    return str(intent.id) if intent is not None else str(getattr(query, "reservation_id", "") or "")


def names_in(world: World) -> dict[str, str]:
    """Names of pods by uid, and of instances by id: with the node and the pool they are of."""
    known = {pod.uid: pod.full_name for pod in world.pods}
    for node in world.nodes:
        if (instance := node.instance) is not None:
            joined = f"node {node.kube.name}" if node.kube is not None else "no node yet"
            known[instance.id] = f"{instance.id} ({joined}, pool {instance.pool or 'none'})"
    return known


class LogReporter:
    """`dry_run`: nothing was done; the lines say what would be. `every_tick`: those without actions are told too."""

    def __init__(
        self, *, dry_run: bool = False, every_tick: bool = False, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._dry_run, self._every_tick, self._now_s = dry_run, every_tick, now_s
        self._told: dict[tuple[str, ...], tuple[float, int]] = {}  # when last, and how often since

    def report(self, report: TickReport) -> None:
        tick = report.tick
        if tick is None:
            return
        known = names_in(tick.world) if tick.outcomes else {}
        for outcome in tick.outcomes:
            self._action(outcome, known)
        for warning in (*tick.plan.warnings, *tick.kept):
            self._warning(warning)
        line = {
            "woken_by": ", ".join(report.woken_by),
            "pods": len(tick.world.pods),
            "nodes": len(tick.world.nodes),
            "waiting": len(tick.plan.unmet),
            "actions": len(tick.outcomes),
            "failed": 0 if self._dry_run else sum(outcome.failed for outcome in tick.outcomes),
            "observe_s": round(tick.times.observe_s, 3),
            "decide_s": round(tick.times.decide_s, 3),
            "act_s": round(tick.times.act_s, 3),
            "wake_at": tick.wake_at.isoformat(timespec="seconds"),
        }
        if not tick.world.cloud_ok or not tick.world.ledger_ok:
            log.warning(
                "ticked without seeing everything", cloud=tick.world.cloud_ok, ledger=tick.world.ledger_ok
            )
        # What it did has its own lines.
        (log.info if self._every_tick else log.debug)("ticked", **line)

    def _action(self, outcome: Outcome, known: Mapping[str, str]) -> None:
        action = outcome.action
        kind, subject = type(action).__name__, subject_of(action, known)
        fields: dict[str, Any] = {"action": kind, "subject": subject, "reason": sentence(action.reason)}
        failed = outcome.failed and not self._dry_run
        if outcome.error and not outcome.failed:
            log.debug("not yet", **fields, detail=outcome.detail)
            return
        key = (kind, subject, outcome.error) if outcome.error else ()
        if key and not self._is_due(key, fields):
            return
        if self._dry_run and outcome.error:
            log.info("would act", **fields)
        elif failed:
            log.warning("action failed", **fields, error=outcome.error, detail=outcome.detail)
        else:
            log.info("acted", **fields, **({"detail": outcome.detail} if outcome.detail else {}))

    def _warning(self, warning: Warning) -> None:
        fields: dict[str, Any] = {"about": warning.about, "why": sentence(warning.reason)}
        if self._is_due(("warning", warning.about, type(warning.reason).__name__), fields):
            log.warning("warning", **fields)

    def _is_due(self, key: tuple[str, ...], fields: dict[str, Any]) -> bool:
        """Whether to tell it now; if it was left out meanwhile, the line says how often."""
        now_s = self._now_s()
        last_s, left_out = self._told.get(key, (float("-inf"), 0))
        if now_s - last_s < REPEAT_EVERY_S:
            self._told[key] = last_s, left_out + 1
            return False
        if len(self._told) >= _MOST_KNOWN:
            self._told.clear()
        self._told[key] = now_s, 0
        if left_out:
            fields["repeated"] = left_out
        return True
