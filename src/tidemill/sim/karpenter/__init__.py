"""A small Karpenter, between the simulated cluster and the simulated account. It shares no code with the engine."""
