"""Small files that are replaced as a whole, and the tables that servers keep in them."""
