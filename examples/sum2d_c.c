/* The sum of a 2-D array of doubles, row by row. Compiled and loaded by sum2d.py. */

#include <stddef.h>

double sum2d(const double *array, size_t rows, size_t columns)
{
    double total = 0.0;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            total += array[i * columns + j];
        }
    }
    return total;
}
