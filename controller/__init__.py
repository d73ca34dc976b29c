"""Controller: assigns broker ids, keeps the sync-state set of each broker group and elects its master."""
