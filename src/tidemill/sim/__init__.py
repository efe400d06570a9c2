"""The simulator: the ports Cloud, Cluster and Clock in memory, in virtual time, seeded.

Rehearsals run on it, with the engine that runs in production, unmodified. `scenario` plays a scenario on a simulated
account (`cloud`) and a simulated cluster (`cluster`, `karpenter`), `invariants` checks what must always hold, `wire`
serves the account over the AWS protocol.
"""
