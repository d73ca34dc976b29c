"""`sprocket store`: look into a store directory, check it, repair it, export and import."""
