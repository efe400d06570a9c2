"""Hand-over: services move from a block that ends (A) to one that lasts (B). B's nodes come first, replicas become
Ready there, then A's replicas go.

`steps` is what is done now, `destinations` what it looks at. `forecast` says beforehand how it will go: `replica_slots`
and `hourly_seats` are the room, `move_schedule` the move; `mitigations` what would help and costs, `warnings` whom to
tell.
"""
