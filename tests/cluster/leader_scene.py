"""Two controllers under load: what they run, and everything that comes and goes around them.

Block a ends during the scene, with a service and work that does not end by itself on it; block b takes over. Jobs come
all the time and make the engine launch on demand. Plans whose windows come into reach one after the other make it buy
blocks, small ones by itself and larger ones when Alice has approved them, and extend block b. EC2 retires nodes under a
service whenever the chaos wants a drain.

A lease is wall time and the cloud's time runs SPEED times as fast. The shortest margin of a drain is 210 s (two
minutes and a signal's lag), so SPEED lets a leader be replaced well within that, as thirty seconds are in production.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
from psycopg.rows import dict_row

from controlplane.api import ApiError, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.controller import LEADS
from tests.cluster.documents import by_the_hour, document, platform, pool
from tests.cluster.objects import budget, deployment, is_ready, job, sim
from tests.cluster.stage import Stage
from tidemill.spec import names

SPEED = 20
LEASE_S = 6
BEGIN = datetime(2026, 11, 18, 9, 28, tzinfo=UTC)
END = datetime(2026, 11, 18, 11, 30, tzinfo=UTC)  # of block a; EC2 ends its instances half an hour earlier
DRAINS_FROM = END - timedelta(minutes=40)
OVER = END - timedelta(minutes=29)
NAMES = ("first", "second")
AHEAD = timedelta(days=3)
WINDOWS = 16
EXTENSIONS = 6  # of block b, a day each
AUTO_MAX_FEE_USD = 1_500  # a day of one instance is below it, of two above
STEADY, STEADY_LEAST = 4, 2  # replicas, each on a node of its own, and how many its budget asks for
STEADY_GRACE_S = 240
# Announced so long before: the drain begins at once, and whoever takes over finds enough time left.
RETIRED_IN, STEADY_LEAD = "15m", "14m"


def _plan(number: int) -> dict[str, Any]:
    """Half an hour on a day of its own, so that no block serves two of them; in reach four minutes after the last."""
    ahead = AHEAD + timedelta(days=number)
    start = BEGIN + ahead + timedelta(minutes=4 * number)
    window = {
        "name": f"w{number}", "from": start.isoformat(), "to": (start + timedelta(minutes=30)).isoformat(),
        "instanceType": "p5.48xlarge", "instances": 1 + number % 2,
    }  # fmt: skip
    return document(
        "CapacityPlan", f"plan-{number}", pool="later", proposeBefore=f"{ahead.days}d", demand=[window],
        extend={"policy": "never"},
    )  # fmt: skip


def _extension(number: int) -> dict[str, Any]:
    """A window behind the end that block b has by then; in reach twelve minutes after the last."""
    start = END + timedelta(days=1 + number, hours=1)
    window = {
        "name": f"e{number}", "from": start.isoformat(), "to": (start + timedelta(minutes=30)).isoformat(),
        "instanceType": "p5.48xlarge", "instances": 2,
    }  # fmt: skip
    ahead = start - (BEGIN + timedelta(minutes=5 + 12 * number))
    before = f"{int(ahead.total_seconds() // 60)}m"
    return document("CapacityPlan", f"longer-{number}", pool="gpu", proposeBefore=before, demand=[window])


def documents() -> list[dict[str, Any]]:
    empty = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}
    return [
        platform(
            budget={"perPurchaseUsd": 100_000, "monthlyUsd": 2_000_000},
            approval={"mode": "auto", "autoMaxFeeUsd": AUTO_MAX_FEE_USD},
        ),
        pool("gpu", limits={"nodes": 4}),
        by_the_hour("burst", disruption=empty),
        by_the_hour("steady", limits={"nodes": 2 * STEADY}, disruption=empty, drain={"lead": STEADY_LEAD}),
        pool("later", limits={"nodes": 16}),
        *map(_plan, range(WINDOWS)),
        *map(_extension, range(EXTENSIONS)),
    ]


class Log:
    """The structured log of a controller, read as it grows. A line that a kill cut short is skipped."""

    def __init__(self, file: Path) -> None:
        self._file, self._place, self._rest = file, 0, b""
        self.lines: list[dict[str, Any]] = []

    def new(self) -> list[dict[str, Any]]:
        with suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._place)
            data = file.read()
            self._place += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            found = []
            for line in whole:
                with suppress(ValueError):
                    read = json.loads(line)
                    if isinstance(read, dict):
                        found.append(read)
            self.lines += found
            return found
        return []

    def events(self, event: str, *, since: datetime) -> list[dict[str, Any]]:
        self.new()
        return [line for line in self.lines if line.get("event") == event and at(line) >= since]


def at(line: dict[str, Any]) -> datetime:
    """When a line of a log was written."""
    return datetime.fromisoformat(line["timestamp"])


def wall_now() -> datetime:
    return datetime.now(UTC)


class LeaderScene:
    """Opened, it runs: both controllers are ready and one of them leads."""

    def __init__(
        self, plane: ControlPlane, processes: Processes, folder: Path, ledger: str, namespaces: tuple[str, str],
        seed: int,
    ) -> None:  # fmt: skip
        """`namespaces`: one whose workloads are held, and one that is nobody's."""
        self.plane, self.processes, self.ledger, self.seed = plane, processes, ledger, seed
        self.managed, self.serving = namespaces
        self.chance = random.Random(seed)
        self.jobs = 0  # that asked for a node of their own
        self.retired: list[str] = []  # instances under the steady service
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.trouble: list[str] = []  # of the scene itself
        self.stage = Stage.open(plane, processes, folder, documents(), speed=0, ledger=ledger)
        self.account = self.stage.account
        self.block_a, self.block_b = blocks = (
            self.account.purchase(2, ends=END.isoformat()),
            self.account.purchase(2, ends=(END + timedelta(days=1)).isoformat()),
        )
        self.account.advance(BEGIN.isoformat())  # EC2 lists a block some minutes after its purchase
        for block in blocks:
            self.stage.adopt(block)
        self.account.speed(SPEED)
        self.logs = {name: Log(processes.logs / f"{name}.log") for name in NAMES}

    # --- controllers --------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """As a user of the API server and of AWS of its own, so that each shows in their records."""
        kubeconfig = self.plane.user(name, ["system:masters"])
        command = self.stage.run_command("--replicas", "2", kubeconfig=kubeconfig, lease_s=LEASE_S)
        env = {**self.stage.environment, "AWS_ACCESS_KEY_ID": f"as-{name}"}
        self.processes.start(name, command, env=env)

    def is_ready(self, name: str, *, since: datetime) -> bool:
        """It has listed the cluster and stands for election. One that ended by itself is started again."""
        if not self.processes.alive(name):
            code = self.processes.exit_code(name)
            if code != 5:  # the ledger follows another leader: as documented
                self.trouble.append(f"{name} ended with {code}: {self.processes.tail(name, 5)}")
            self.start(name)
            return False
        serving = self.logs[name].events("serving", since=since)
        with suppress(OSError):
            if serving:
                url = f"http://127.0.0.1:{serving[-1]['port']}/readyz"
                with urlopen(url, timeout=2) as answer:
                    return bool(answer.status == 200)
        return False

    def leader(self) -> str:
        """Who said last that it leads."""
        newest = [
            (at(lines[-1]), name)
            for name in NAMES
            if (lines := self.logs[name].events(LEADS, since=datetime.min.replace(tzinfo=UTC)))
        ]
        return max(newest)[1] if newest else ""

    # --- load ---------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        began = wall_now()
        for name in NAMES:
            self.start(name)
        for name in NAMES:
            ready = partial(self.is_ready, name, since=began)
            eventually(ready, timeout_s=180, what=f"{name} is ready")
        eventually(self.leader, timeout_s=60, what="one leads")
        self._place_work()
        for work in (self._submit_jobs, self._approve):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            yield
        finally:
            self.end_load()

    def end_load(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _place_work(self) -> None:
        """On the blocks: a service that is handed over, one that is evicted, and Jobs that overrun what they said."""
        on = {"workload-type": "gpu"}
        self.stage.create(
            self.serving,
            budget("chat", 2),
            deployment("chat", 2, gpus=4, grace_s=60, selector=on, annotations={names.HANDOVER: "rollout"}),
            deployment("plain", 2, gpus=2, grace_s=45, selector=on),
        )
        steady, slow = {"workload-type": "steady"}, sim(stops_after=f"{STEADY_GRACE_S}s")
        self.stage.create(
            self.serving,
            budget("steady", STEADY_LEAST),
            deployment("steady", STEADY, gpus=4, grace_s=STEADY_GRACE_S, selector=steady, annotations=slow),
        )
        late = sim(duration="9h")
        for number in range(3):
            given = job(f"late-{number}", lasts="12m", gpus=2, grace_s=60, selector=on, annotations=late)
            self.stage.create(self.managed, given)

    def _submit_jobs(self) -> None:
        """A few at a time, and a pause in which nodes become empty and go. Each asks for a whole node, so that it is
        worth one launch and never two."""
        chance = random.Random(self.seed)
        while not self._stop.wait(chance.uniform(3.0, 9.0)):
            for _ in range(chance.randint(1, 4)):
                lasts = f"{chance.randint(2, 4)}m"
                on = {"workload-type": "burst"}
                try:
                    self.stage.create(
                        self.managed, job(f"burst-{self.jobs}", lasts=lasts, gpus=4, grace_s=30, selector=on)
                    )
                    self.jobs += 1
                except (ApiError, OSError) as error:
                    self.trouble.append(f"a Job could not be made: {error}")

    def _approve(self) -> None:
        """Alice approves what waits for a person."""
        env = {**self.stage.environment, "AWS_ACCESS_KEY_ID": "as-alice"}
        query = "SELECT id FROM purchases WHERE state = 'proposed' AND max_fee_usd > %s"
        while not self._stop.wait(2.0):
            waiting = [row["id"] for row in self.rows(query, AUTO_MAX_FEE_USD)]
            if waiting:
                given = ("-f", str(self.stage.files), "--aws", "--yes")
                self.stage.tidemill("approve", *waiting, *given, code=None, env=env)

    def retire(self) -> bool:
        """EC2 announces the end of a node under the steady service, if its budget allows one replica less."""
        nodes = {
            node["spec"]["providerID"].rsplit("/", 1)[-1]: node["metadata"]["name"]
            for node in self.stage.open_nodes()
            if node["metadata"]["labels"].get("workload-type") == "steady"
        }
        serving = {pod["spec"].get("nodeName") for pod in self.stage.pods(self.serving) if is_ready(pod)}
        well = sorted(id_ for id_, node in nodes.items() if node in serving and id_ not in self.retired)
        if len(well) <= STEADY_LEAST:
            return False
        chosen = self.chance.choice(well)
        if struck := self.account.fault("retirement", target=chosen, duration=RETIRED_IN):
            self.retired.append(chosen)
        return bool(struck)

    # --- what is seen from outside ------------------------------------------------------------------

    def rows(self, query: str, *given: Any) -> list[dict[str, Any]]:
        """Of the ledger."""
        with psycopg.connect(self.ledger, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), given).fetchall()

    def calls(self) -> list[dict[str, Any]]:
        """Of AWS, that may have changed something."""
        found: list[dict[str, Any]] = self.account.ask("calls")
        return found

    def api_writes(self, user: str, *, since: datetime, until: datetime) -> list[dict[str, Any]]:
        """What the API server did for this user, by its audit log."""
        found = []
        for line in (self.plane.folder / "log/audit.log").read_text().splitlines():
            if f'"username":"{user}"' not in line:
                continue
            with suppress(ValueError):
                event = json.loads(line)
                received = datetime.fromisoformat(event["requestReceivedTimestamp"])
                changes = event["verb"] in ("create", "update", "patch", "delete", "deletecollection")
                if event["user"]["username"] == user and changes and since <= received <= until:
                    found.append(event)
        return found

    def wait_until(self, instant: datetime) -> None:
        while self.account.now() < instant:
            time.sleep(0.3)
