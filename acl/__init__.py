"""Access control.  Empty until it lands; every route already states its resource and action."""
