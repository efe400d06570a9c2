"""The simulated account over the real AWS protocol: boto3 and the stock AWS CLI talk to it as to AWS.

The account is `sim.cloud`, the one that rehearsals run on. What concerns capacity and instances is answered by it,
everything else (launch templates, networks, queues) by moto. This is the one part of `sim` that knows threads, sockets
and wall time.
"""

from tidemill.sim.wire.server import WireServer

__all__ = ["WireServer"]
