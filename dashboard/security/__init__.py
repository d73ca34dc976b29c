"""Rules about who may ask the dashboard, and from where.  Pure."""
