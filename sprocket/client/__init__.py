"""The asyncio client.  Applications import its names from `sprocket`."""
