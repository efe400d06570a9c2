"""What the core speaks of: world, plan, resources, pods, nodes, purchases, alerts, errors. Data, and no rules."""
