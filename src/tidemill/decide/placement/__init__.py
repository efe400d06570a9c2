"""Which pods may start, and where: the queue, who may use what, existing nodes, nodes to launch, backfill."""
