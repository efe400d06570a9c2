"""Hand-over: services move from a block that ends (A) to one that lasts (B). B's nodes come first, replicas become
Ready there, then A's replicas go.

`pace` knows how long things take, `method` what each way to move needs, `steps` what is done now, `claims` keeps room,
`outlook` says beforehand how it will go (`seats` and `move` reckon it), `ways` what would help and costs, `forewarn`
whom to tell.
"""
