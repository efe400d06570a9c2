"""How alerts reach people: the watch after each tick, the bodies, the targets, and the courier that carries them."""
