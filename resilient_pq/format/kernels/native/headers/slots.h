/* Instances of slotted classes, made and filled without going through their constructors. */
#ifndef RPQ_SLOTS_H
#define RPQ_SLOTS_H

#include <Python.h>
#include <structmember.h>

/* The offset of a slot within its instances, by the descriptor that stands in the class; -1 where it is none. */
static Py_ssize_t slot_offset(PyObject *descriptor) {
    PyMemberDef *member;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        return -1;
    }
    member = ((PyMemberDescrObject *)descriptor)->d_member;
    return member->type == T_OBJECT_EX ? member->offset : -1;
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
