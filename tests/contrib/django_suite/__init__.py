"""Django's own tests of task backends against the backend of Sprocket."""
