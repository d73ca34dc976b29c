"""The pytest plugin of Sprocket; pytest loads it by its entry point."""
