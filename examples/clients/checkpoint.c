/* Writes a checkpoint of the values 0, 1, 4, 9 ... and reads it back, without the mount.
 *
 *     checkpoint STORE PATH COUNT
 *
 * STORE is the store's directory, PATH a path in the service. Prints the sum of what it has read. */
#include <forebay.h>

#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what)
{
    fprintf(stderr, "checkpoint: %s: %s\n", what, forebay_error_message());
    return EXIT_FAILURE;
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: checkpoint STORE PATH COUNT\n");
        return 2;
    }
    const char *path = words[2];
    size_t values = strtoul(words[3], NULL, 10);
    double *field = malloc(values * sizeof *field + 1);
    if (field == NULL) {
        fprintf(stderr, "checkpoint: no memory\n");
        return EXIT_FAILURE;
    }

    struct forebay *service;
    if (forebay_connect(words[1], &service) < 0)
        return failed("connect");

    /* Under another name until it is whole. */
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    struct forebay_file *file;
    int flags = FOREBAY_WRITE | FOREBAY_CREATE | FOREBAY_TRUNCATE;
    if (forebay_open(service, temporary, flags, 0644, &file) < 0)
        return failed("create");
    for (size_t i = 0; i < values; i++)
        field[i] = (double)i * (double)i;
    if (forebay_pwrite(file, field, values * sizeof *field, 0) < 0)
        return failed("write");
    /* On disk, and seen by other nodes. */
    if (forebay_fsync(file) < 0 || forebay_close(file) < 0)
        return failed("publish");
    if (forebay_rename(service, temporary, path) < 0)
        return failed("rename");

    struct forebay_stat found;
    if (forebay_stat(service, path, &found) < 0)
        return failed("stat");
    if (found.size != values * sizeof *field) {
        fprintf(stderr, "checkpoint: %s has %llu bytes\n", path, (unsigned long long)found.size);
        return EXIT_FAILURE;
    }
    if (forebay_open(service, path, FOREBAY_READ, 0, &file) < 0)
        return failed("open");
    int64_t read = forebay_pread(file, field, found.size, 0);
    if (read != (int64_t)found.size)
        return failed("read");
    double sum = 0;
    for (size_t i = 0; i < values; i++)
        sum += field[i];
    printf("%.17g\n", sum);

    forebay_close(file);
    forebay_disconnect(service);
    free(field);
    return EXIT_SUCCESS;
}
