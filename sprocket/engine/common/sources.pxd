# The digest of the sources of a module: `setup.py` gives each its own.

cdef extern from *:
    """
    #ifndef ENGINE_SOURCES
    #define ENGINE_SOURCES ""
    #endif
    """
    const char *ENGINE_SOURCES
