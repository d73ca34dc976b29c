"""Pulls and pops that found nothing and wait for a message or a deadline."""
