"""TLS: settings, certificates, and connections."""
