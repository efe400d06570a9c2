"""Chaos on money: the engine buys and extends blocks while everything around it fails; a judge counts the mistakes.

`drawn_run` draws one run from a seed, `fault_injector` makes the ports fail, `simulate` runs it, `judge` compares what
the simulated EC2 sold with what people approved, what the budget allows and what the ledger knows.
"""
