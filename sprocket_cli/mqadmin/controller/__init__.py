"""Commands for the controllers, the masters and members that they know, and their configuration."""
