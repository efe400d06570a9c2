"""The simulated AWS account: what it sells, launches, bills and ends, in virtual time."""
