"""Apache's mqadmin at our servers, and ours at Apache's."""
