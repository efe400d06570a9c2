"""A process that wants to lead: it prints when it begins and, as long as it may, a line for every write.

`python -m tests.cluster.lease_holder KUBECONFIG NAMESPACE IDENTITY LEASE_S`
"""

from __future__ import annotations

import sys
import time

from tidemill.kube.connect import connect
from tidemill.kube.lease import LeaseElector, boot_seconds

TIMEOUT_S = 0.2  # of the write that is made believe


def main(kubeconfig: str, namespace: str, identity: str, lease_s: str) -> None:
    def say(what: str) -> None:
        print(f"{boot_seconds():.3f} {identity} {what}", flush=True)

    elector = LeaseElector(
        connect(kubeconfig), namespace=namespace, name="contest", identity=identity, lease_s=int(lease_s),
        on_lead=lambda: say("leads"), on_lost=lambda: say("lost"),
    )  # fmt: skip
    elector.start()
    while True:
        if elector.left_s() > TIMEOUT_S:
            say("writes")
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
