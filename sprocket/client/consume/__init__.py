"""Delivery of pulled messages to the application: settings, handlers, redelivery, figures."""
