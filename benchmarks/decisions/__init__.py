"""What are the engine's decisions worth? Scenarios whose best outcome is known, played by three policies."""
