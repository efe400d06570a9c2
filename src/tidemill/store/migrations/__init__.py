"""How a ledger of an earlier version becomes one of this version. Run by `store.migrate` when a ledger is opened."""
