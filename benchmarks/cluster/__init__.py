"""Controllers beside a real control plane that holds a large cluster."""
