"""Many documents in processes of their own: each has a time limit, and one that dies takes nobody along."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from benchmarks.vopr.generate import as_text, generate
from benchmarks.vopr.judge import Verdict, judge

# What a process may take on a busy machine, as a multiple of the CPU time it is allowed; then it is ended.
WALL_PER_CPU = 30
TWICE_EVERY = 20  # so many documents are rehearsed twice, and must give the same result


@dataclass(frozen=True, slots=True)
class Task:
    seed: int
    days: int
    cpu_limit_s: float

    @property
    def text(self) -> str:
        return as_text(generate(self.seed, self.days))


def sweep(tasks: Iterable[Task], processes: int) -> Iterator[tuple[Task, Verdict]]:
    """Verdicts as they come. Whoever stops listening ends the processes that still run."""
    waiting = iter(tasks)
    running: dict[Connection, tuple[Task, BaseProcess, float]] = {}
    try:
        while True:
            while len(running) < processes and (task := next(waiting, None)) is not None:
                receiver, process = _started(_verdict, task)
                running[receiver] = (task, process, time.monotonic())
            if not running:
                return
            ready = wait(list(running), timeout=1.0)
            for receiver, (task, process, began) in list(running.items()):
                if receiver in ready:
                    yield task, _received(receiver, process)
                elif time.monotonic() - began > task.cpu_limit_s * WALL_PER_CPU:
                    yield task, Verdict(signature="too slow", story="its process had to be ended")
                else:
                    continue
                del running[receiver]
                _end(process)
    finally:
        for _, process, _ in running.values():
            _end(process)


def _verdict(task: Task) -> Verdict:
    text = task.text
    verdict = judge(text, task.seed, cpu_limit_s=task.cpu_limit_s)
    if task.seed % TWICE_EVERY == 0 and verdict.digest and not verdict.signature:
        again = judge(text, task.seed, cpu_limit_s=task.cpu_limit_s)
        if again.digest != verdict.digest and again.signature != "too slow":
            verdict.signature = "two results"
            verdict.story = "the same documents and seed gave two different results"
    return verdict


def apart(do: Callable[..., Verdict], *arguments: object) -> Verdict:
    """One verdict from a process of its own."""
    receiver, process = _started(do, *arguments)
    try:
        return _received(receiver, process)
    finally:
        _end(process)


def _started(do: Callable[..., Verdict], *arguments: object) -> tuple[Connection, BaseProcess]:
    # Forked: everything is imported already, and a document starts within milliseconds.
    forks = multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)
    process = forks.Process(target=_send, args=(sender, do, arguments), daemon=True)
    process.start()
    sender.close()
    return receiver, process


def _send(sender: Connection, do: Callable[..., Verdict], arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(KeyboardInterrupt):  # the parent says so
        sender.send(do(*arguments))


def _received(receiver: Connection, process: BaseProcess) -> Verdict:
    try:
        verdict: Verdict = receiver.recv()
        return verdict
    except EOFError:
        process.join()
        return Verdict(signature="died", story=f"its process ended with {process.exitcode}")


def _end(process: BaseProcess) -> None:
    if process.is_alive():
        process.terminate()
    process.join()
