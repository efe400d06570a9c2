"""The simulated account over the real AWS protocol: boto3 and the stock AWS CLI talk to it as to AWS.

The body is `sim.cloud`, the very one that rehearsals run on; this is its second face. What the body has an opinion on
(capacity, instances) is answered from it, everything else (launch templates, networks, queues) by moto. This is the one
part of `sim` that knows threads, sockets and wall time.
"""

from tidemill.sim.wire.server import WireServer

__all__ = ["WireServer"]
