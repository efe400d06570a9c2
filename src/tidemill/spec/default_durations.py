"""How long a boot and a model load usually take, until they have been measured."""

from __future__ import annotations

from datetime import timedelta

# From launch call to a Ready, verified node: 3-5 minutes to join, 60-90 s to register, half a minute to check.
BOOT = timedelta(minutes=7)
# From S3 or a file system to all GPUs of a node, some hundred gigabytes, for a service that never ran and states no
# load
# time. Errs on the long side: too long an overlap costs idle minutes, too short an overlap an outage.
LOAD = timedelta(minutes=10)
