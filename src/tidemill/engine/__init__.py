"""The loop around `decide`: observe the world, carry out the plan, buy, meter, and say when to look again."""
