# Attributes of slotted classes, written straight into new instances: `Request` and its headers, `ReceivedMessage`.

from cpython.object cimport PyObject

cdef extern from *:
    """
    #include "structmember.h"

    /* Where an instance of a slotted class holds the attribute that `descriptor` reads; -1 if it is no such slot. */
    static Py_ssize_t slot_of(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type))
            return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    #define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
    /* Give a new instance an attribute, and take over a reference to `value`. */
    static inline void set_slot(PyObject *instance, Py_ssize_t offset, PyObject *value) {
        SLOT(instance, offset) = value;
    }
    """
    Py_ssize_t slot_of(object descriptor)
    void set_slot(PyObject *instance, Py_ssize_t offset, PyObject *value)
    PyObject *SLOT(PyObject *instance, Py_ssize_t offset)
