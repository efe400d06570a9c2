"""A rehearsal: a scenario played out on the simulated cloud and cluster, watched and summed up."""
