/* MMAT: minimum, maximum and average of a variable of a file, with open, pread and close.
 *
 *   cc -O2 -o mmat mmat.c
 *   mmat FILE f32|f64 [OFFSET [STRIDE]]
 *
 * The variable is every STRIDE-th number, the first at byte OFFSET. Numbers are little-endian, as the machine's; what is no number
 * (NaN) is left out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (4 << 20)

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "mmat: %s: %s\n", what, why);
    exit(1);
}

/* An argument as a number of at least `least`. */
static long long number(const char *text, long long least)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < least) {
        fprintf(stderr, "mmat: %s: is no such number\n", text);
        exit(2);
    }
    return n;
}

/* Fills the block as far as the file goes; a read may give less than was asked for. */
static size_t read_block(int file, const char *name, char *block, off_t at)
{
    size_t filled = 0;
    while (filled < BLOCK) {
        ssize_t got = pread(file, block + filled, BLOCK - filled, at + (off_t)filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail(name, strerror(errno));
        if (got == 0)
            break;
        filled += (size_t)got;
    }
    return filled;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5 || (strcmp(argv[2], "f32") && strcmp(argv[2], "f64"))) {
        fprintf(stderr, "usage: mmat FILE f32|f64 [OFFSET [STRIDE]]\n");
        return 2;
    }
    size_t width = strcmp(argv[2], "f64") ? 4 : 8;
    off_t at = argc > 3 ? (off_t)number(argv[3], 0) : 0;
    long long stride = argc > 4 ? number(argv[4], 1) : 1;
    int file = open(argv[1], O_RDONLY);
    if (file < 0)
        fail(argv[1], strerror(errno));
    char *block = malloc(BLOCK);
    if (!block)
        fail(argv[1], "no memory");

    double minimum = 0, maximum = 0, sum = 0;
    long long count = 0, index = 0;
    size_t filled;
    do {
        filled = read_block(file, argv[1], block, at);
        for (size_t i = 0; i + width <= filled; i += width, index++) {
            double value;
            if (index % stride)
                continue;
            if (width == 4) {
                float single;
                memcpy(&single, block + i, 4);
                value = single;
            } else {
                memcpy(&value, block + i, 8);
            }
            if (value != value)
                continue;
            if (count == 0 || value < minimum)
                minimum = value;
            if (count == 0 || value > maximum)
                maximum = value;
            sum += value;
            count++;
        }
        at += (off_t)filled;
    } while (filled == BLOCK);
    close(file);
    free(block);
    if (count == 0)
        fail(argv[1], "there is no number");
    printf("minimum %.17g\nmaximum %.17g\naverage %.17g\nvalues %lld\n", minimum, maximum, sum / (double)count, count);
    return 0;
}
