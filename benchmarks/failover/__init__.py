"""How long clients cannot send when a master dies under controllers."""
