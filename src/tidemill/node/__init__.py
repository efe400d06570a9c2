"""What runs on a GPU node: the deadline agent. It knows its own node and nothing of the engine's decisions."""
