"""Settings of a broker by subject, the files under ``config/``, and the settings of a running broker."""
