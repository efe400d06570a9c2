"""A judge of solutions that shares nothing with the packer but the question."""
