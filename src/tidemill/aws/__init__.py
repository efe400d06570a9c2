"""AWS over boto3: `ports.Account` and `ports.Compute` for a real account, and for the simulated one on the wire.

Records become the engine's objects once, at the edge, by pure functions that reject what they do not know. Nothing here
decides: what to launch or buy comes from above, and what a launch is made of from `provision`.
"""
