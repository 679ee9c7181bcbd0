/* One measured process of the benchmark `clients` in C: does the job that src/job.rs describes.
 *
 *     worker JOB
 *
 * The job is JSON as serde writes it, without blanks; its numbers and names are found by their keys. */
#include <forebay.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED UINT64_C(0x9E3779B97F4A7C15)
#define RANDOM_READS 4096

static void fail(const char *what)
{
    fprintf(stderr, "worker: %s: %s\n", what, forebay_error_message());
    exit(1);
}

static const char *value(const char *job, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(job, quoted);
    return found == NULL ? NULL : found + strlen(quoted);
}

static uint64_t number(const char *job, const char *key)
{
    const char *found = value(job, key);
    return found == NULL ? 0 : strtoull(found, NULL, 10);
}

static char *text(const char *job, const char *key)
{
    const char *found = value(job, key);
    if (found == NULL || *found != '"')
        return calloc(1, 1);
    size_t length = strcspn(found + 1, "\"");
    char *copy = calloc(1, length + 1);
    return copy == NULL ? NULL : memcpy(copy, found + 1, length);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* As src/random.rs. */
static uint64_t next(uint64_t *state)
{
    *state += SEED;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

struct job {
    struct forebay *service;
    char *dir;
    uint64_t rank, of;
};

static uint64_t records(const struct job *job, const char *words, int writes)
{
    uint64_t record = number(words, "record"), bytes = number(words, "bytes");
    uint64_t each = bytes / record / job->of, random = SEED ^ job->rank, done = 0;
    char *layout = text(words, "layout"), path[4096];
    int own = strcmp(layout, "Own") == 0, segments = strcmp(layout, "Segments") == 0;
    int strided = strcmp(layout, "Strided") == 0;
    uint64_t count = own || segments || strided || each < RANDOM_READS ? each : RANDOM_READS;
    uint8_t *buffer = malloc(record);
    if (buffer == NULL)
        exit(1);
    for (uint64_t i = 0, state = SEED; i < record; i++)
        buffer[i] = (uint8_t)next(&state);
    if (own)
        snprintf(path, sizeof path, "%s/data.%" PRIu64, job->dir, job->rank);
    else
        snprintf(path, sizeof path, "%s/data", job->dir);
    struct forebay_file *file;
    int flags = writes ? FOREBAY_WRITE | FOREBAY_CREATE : FOREBAY_READ;
    if (forebay_open(job->service, path, flags, 0644, &file) < 0)
        fail("open");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = own        ? i * record
                          : segments ? (job->rank * each + i) * record
                          : strided  ? (i * job->of + job->rank) * record
                                     : next(&random) % (each * job->of) * record;
        if (writes) {
            memcpy(buffer, &offset, sizeof offset);
            if (forebay_pwrite(file, buffer, record, offset) < 0)
                fail("write");
        } else {
            if (forebay_pread(file, buffer, record, offset) != (int64_t)record)
                fail("read");
            int random_part = !own && !segments && !strided && offset % (1 << 20) != 0;
            if (!random_part && memcmp(buffer, &offset, sizeof offset) != 0) {
                fprintf(stderr, "worker: wrong bytes at %" PRIu64 "\n", offset);
                exit(1);
            }
        }
        done += record;
    }
    if (writes && forebay_fsync(file) < 0)
        fail("sync");
    if (forebay_close(file) < 0)
        fail("close");
    free(buffer);
    free(layout);
    return done;
}

static uint64_t files(const struct job *job, uint64_t all, char task)
{
    uint64_t rank = task == 'S' ? (job->rank + 1) % job->of : job->rank;
    char path[4096], dir[2048];
    struct forebay_stat found;
    snprintf(dir, sizeof dir, "%s/%" PRIu64, job->dir, rank);
    if (forebay_stat(job->service, dir, &found) < 0)
        snprintf(dir, sizeof dir, "%s", job->dir);
    for (uint64_t i = 0; i < all / job->of; i++) {
        snprintf(path, sizeof path, "%s/f%" PRIu64 ".%" PRIu64, dir, rank, i);
        struct forebay_file *file;
        int failed;
        if (task == 'C') {
            failed = forebay_open(job->service, path, FOREBAY_WRITE | FOREBAY_CREATE_NEW, 0644, &file);
            failed = failed < 0 ? failed : forebay_close(file);
        } else if (task == 'S') {
            failed = forebay_lstat(job->service, path, &found);
        } else {
            failed = forebay_unlink(job->service, path);
        }
        if (failed < 0)
            fail(path);
    }
    return all / job->of;
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    const char *text_of_job = words[1];
    char *store = text(text_of_job, "link");
    struct job job = {NULL, text(text_of_job, "dir"), number(text_of_job, "rank"), number(text_of_job, "of")};
    if (forebay_connect(store, &job.service) < 0)
        fail("connect");
    puts("ready");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), start = seconds(CLOCK_MONOTONIC);
    uint64_t done;
    if (value(text_of_job, "Write") != NULL)
        done = records(&job, text_of_job, 1);
    else if (value(text_of_job, "Read") != NULL)
        done = records(&job, text_of_job, 0);
    else if (value(text_of_job, "Create") != NULL)
        done = files(&job, number(text_of_job, "Create"), 'C');
    else if (value(text_of_job, "Stat") != NULL)
        done = files(&job, number(text_of_job, "Stat"), 'S');
    else
        done = files(&job, number(text_of_job, "Unlink"), 'U');
    double end = seconds(CLOCK_MONOTONIC);
    printf("{\"start\":%.9f,\"end\":%.9f,\"cpu\":%.9f,\"done\":%" PRIu64 "}\n", start, end,
           seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, done);
    return forebay_disconnect(job.service) < 0;
}
