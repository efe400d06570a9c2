"""How long things usually take, for as long as nobody has measured them."""

from __future__ import annotations

from datetime import timedelta

# From launch call to a Ready, verified node: 3-5 minutes to join, 60-90 s to register, half a minute to check.
BOOT = timedelta(minutes=7)
# A model of some hundred gigabytes from S3 or a file system to all GPUs of a node, for a service that never ran and
# does not say. Errs on the long side: an overlap that is too long costs idle minutes, one too short an outage.
LOAD = timedelta(minutes=10)
