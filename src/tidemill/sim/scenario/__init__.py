"""A rehearsal: runs a scenario on the simulated account and cluster, checks it and sums it up."""
