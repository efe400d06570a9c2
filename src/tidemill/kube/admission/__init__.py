"""How workloads of ours are held when they are created: by policies of the API server, or by a webhook."""
