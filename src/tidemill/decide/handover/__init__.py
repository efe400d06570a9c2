"""Services move from a source that ends to one that lasts: B's nodes first, replicas Ready there, then A's go.

`pace` knows how long things take, `method` what each way to move needs, `steps` what is done now, `claims` keeps room,
`outlook` says beforehand how it will go (`seats` and `move` reckon it), `ways` what would help and costs, `forewarn`
whom to tell.
"""
