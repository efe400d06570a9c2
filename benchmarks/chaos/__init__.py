"""Chaos on money: the engine buys and extends blocks while everything around it fails; a judge counts what is wrong.

`story` draws one run from a seed, `weather` shakes the ports, `play` runs it, `judge` compares what the simulated EC2
sold with what people approved, what the budget allows and what the ledger knows.
"""
