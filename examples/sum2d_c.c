/* The loops of sum2d.py as a small extension module: sum2d(array), for arrays of doubles. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

static PyObject *sum2d(PyObject *self, PyObject *array) {
    Py_buffer view;
    double total = 0.0;

    (void)self;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) {
        return NULL;
    }
    if (view.ndim != 2 || view.format == NULL || strcmp(view.format, "d") != 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_TypeError, "sum2d takes a 2-D array of doubles");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < view.shape[0]; i++) {
        const char *row = (const char *)view.buf + i * view.strides[0];
        for (Py_ssize_t j = 0; j < view.shape[1]; j++) {
            total += *(const double *)(row + j * view.strides[1]);
        }
    }
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(total);
}

static PyMethodDef methods[] = {
    {"sum2d", sum2d, METH_O, "The sum of a 2-D array of doubles."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "sum2d_c", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_sum2d_c(void) { return PyModule_Create(&module); }
