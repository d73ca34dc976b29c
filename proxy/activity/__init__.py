"""Methods of MessagingService, one module for each group."""
