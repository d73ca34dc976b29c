"""The client for programs without an event loop: scripts and threads.  Applications import `sprocket.sync`.

Each class is the asyncio class of the same name as a blocking context manager, with the same arguments, results and
errors.  All objects share one event loop in one background thread, which ends with the last of them.
Any number of threads may use one object.  An interrupt (Ctrl-C) ends the waiting call.
"""
