/* STREAM-like bandwidth: read, copy and triad over double arrays, as a C compiler makes them of plain loops.
 *
 *   gcc -O3 -march=native -fopenmp stream.c -o stream
 *   OMP_NUM_THREADS=2 OMP_PROC_BIND=true ./stream triad ELEMENTS PASSES [huge]
 *
 * Prints the seconds that PASSES passes took and a checksum. Each thread first writes what it works on. "huge" asks for huge pages.
 * Bytes of a pass, as STREAM counts: read 8, copy 16, triad 24 an element.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static double *array(long elements, int huge)
{
    void *memory;
    size_t bytes = (elements * sizeof(double) + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    if (posix_memalign(&memory, 2 << 20, bytes))
        exit(2);
    madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    const char *kernel = words[1];
    const long n = atol(words[2]), passes = atol(words[3]);
    const int huge = count > 4 && !strcmp(words[4], "huge");
    const double scale = 3.0;
    double *restrict a = array(n, huge), *restrict b = array(n, huge), *restrict c = array(n, huge);
    double sum = 0.0, start = 0.0;
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        a[i] = 1.0;
        b[i] = 2.0;
        c[i] = 0.0;
    }
    for (long pass = -1; pass < passes; pass++) { /* pass -1 warms up */
        if (pass == 0)
            start = omp_get_wtime();
        if (!strcmp(kernel, "copy")) {
#pragma omp parallel for
            for (long i = 0; i < n; i++)
                c[i] = a[i];
        } else if (!strcmp(kernel, "triad")) {
#pragma omp parallel for
            for (long i = 0; i < n; i++)
                a[i] = b[i] + scale * c[i];
        } else {
#pragma omp parallel for simd reduction(+ : sum)
            for (long i = 0; i < n; i++)
                sum += a[i];
        }
    }
    const double seconds = omp_get_wtime() - start;
    printf("%.9f %.17g\n", seconds, sum + a[n / 2] + c[n - 1]);
    return 0;
}
