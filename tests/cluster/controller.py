"""A `tidemill run` that was started: its structured log, its probes and its metrics."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from controlplane.api import eventually
from controlplane.processes import Processes

LEADS = "this process leads"


class Controller:
    def __init__(self, name: str, processes: Processes) -> None:
        self.name, self.processes = name, processes

    def lines(self) -> list[dict[str, Any]]:
        """Its structured log."""
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    def log(self) -> str:
        return (self.processes.logs / f"{self.name}.log").read_text(errors="replace")

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == event]

    def wait_for(self, event: str, *, count: int = 1, timeout_s: float = 120.0) -> dict[str, Any]:
        def said() -> Any:
            assert self.processes.alive(self.name), f"it ended: {self.processes.tail(self.name)}"
            found = self.events(event)
            return found[count - 1] if len(found) >= count else None

        found: dict[str, Any] = eventually(said, timeout_s=timeout_s, what=f"{self.name} says '{event}'")
        return found

    def get(self, path: str) -> tuple[int, str]:
        self.wait_for("serving")
        port = self.events("serving")[-1]["port"]  # it may have been started again
        try:
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except URLError as error:
            return 0, str(error)

    def is_ready(self) -> bool:
        return self.get("readyz")[0] == 200

    def metric(self, sample: str) -> float:
        """The value of one sample, written as Prometheus shows it: `tidemill_nodes{phase="ready",pool="train"}`."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.get("metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0
