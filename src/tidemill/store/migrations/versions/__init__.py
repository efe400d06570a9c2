"""One file per version, never changed once released: ledgers out there were made by it."""
