"""The ledger: intents, verdicts and money, written down before and after everything that costs."""
