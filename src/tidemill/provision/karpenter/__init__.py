"""Pools that Karpenter launches for: the NodePools and node classes that should exist, kept in step with the blocks.

`objects` says which there should be, `node_class` and `node_pool` write one each, `room` divides the limits of the pool
between them, `settling` takes room before it is given, `differences` compares them with what the cluster has, `removal`
says when one may go, and `reconciler` does it.
"""
