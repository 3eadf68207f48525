/* Instances of slotted classes, made and filled without going through their constructors. */
#ifndef RPQ_SLOTS_H
#define RPQ_SLOTS_H

#include <Python.h>
/* The offset of a slot within its instances, by the descriptor that stands in the class; -1 where it is none. The
   limited API does not tell it, so a value is put into the slot of an instance, and looked for. */
static Py_ssize_t slot_offset(PyObject *descriptor) {
    PyObject *cls = NULL, *size = NULL, *instance = NULL, *done = NULL;
    Py_ssize_t offset, found = -1;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
        || (cls = PyObject_GetAttrString(descriptor, "__objclass__")) == NULL
        || (size = PyObject_GetAttrString(cls, "__basicsize__")) == NULL
        || (instance = PyType_GenericAlloc((PyTypeObject *)cls, 0)) == NULL
        || (done = PyObject_CallMethod(descriptor, "__set__", "OO", instance, descriptor)) == NULL) {
        PyErr_Clear();
    } else {
        for (offset = sizeof(PyObject); offset < PyLong_AsSsize_t(size); offset += sizeof(PyObject *)) {
            if (*(PyObject **)((char *)instance + offset) == descriptor) {
                found = offset;
                break;
            }
        }
    }
    Py_XDECREF(done);
    Py_XDECREF(instance);
    Py_XDECREF(size);
    Py_XDECREF(cls);
    return found;
}

/* A new instance whose slots are all empty. The collector does not know it: trees of plain values have no cycles,
   and walking the objects of a large footer again and again would take longer than making them. */
static PyObject *empty_instance(PyObject *cls) {
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)cls, 0);
    if (made != NULL) {
        PyObject_GC_UnTrack(made);
    }
    return made;
}

static void leave_to_references(PyObject *container) {
    PyObject_GC_UnTrack(container);
}

static PyObject **slot_of(PyObject *instance, Py_ssize_t offset) {
    return (PyObject **)((char *)instance + offset);
}

/* Fills a slot; what stood there is let go. */
static void fill_slot(PyObject *instance, Py_ssize_t offset, PyObject *value) {
    PyObject **slot = slot_of(instance, offset);
    PyObject *before = *slot;
    Py_INCREF(value);
    *slot = value;
    Py_XDECREF(before);
}

static int slot_is_empty(PyObject *instance, Py_ssize_t offset) {
    return *slot_of(instance, offset) == NULL;
}

#endif
