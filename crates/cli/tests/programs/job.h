/* What the programs share: where a rank's files are, what must hold, and bytes that say who wrote them.
 *
 * Rank k works below the k-th directory of FOREBAY_MOUNTS (separated by colons, counted round): four mounts of one service, or
 * four times the same plain directory. The directories name the same files, so all ranks may open their own name of one. */
#ifndef JOB_H
#define JOB_H
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

/* Ends the whole job if something does not hold, and says what. */
#define MUST(holds, ...)                                              \
    do {                                                              \
        if (!(holds)) {                                               \
            fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, rank); \
            fprintf(stderr, __VA_ARGS__);                             \
            fputc('\n', stderr);                                      \
            MPI_Abort(MPI_COMM_WORLD, 1);                             \
            exit(1);                                                  \
        }                                                             \
    } while (0)

/* An MPI call that must succeed: errors of files come back as codes. */
__attribute__((unused)) static void check(int code, const char *call, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    MUST(code == MPI_SUCCESS, "line %d: %s: %s", line, call, text);
}
#define CALL(call) check(call, #call, __LINE__)

/* The name of a file as this rank has it. Kept until the next call. */
static const char *path(const char *name)
{
    static char whole[4096];
    const char *mounts = getenv("FOREBAY_MOUNTS");
    MUST(mounts && *mounts, "FOREBAY_MOUNTS says nothing");
    int n = 1;
    for (const char *c = mounts; *c; c++)
        n += *c == ':';
    const char *from = mounts;
    for (int skip = rank % n; skip; skip--)
        from = strchr(from, ':') + 1;
    snprintf(whole, sizeof whole, "%.*s/%s", (int)strcspn(from, ":"), from, name);
    return whole;
}

/* The rank whose bytes this one verifies: it wrote through another mount. */
static int other(void) { return (rank + 1) % ranks; }

/* What `who` writes as its `i`-th number in `round`. */
static int number(int who, int i, int round)
{
    unsigned x = (unsigned)who * 0x9E3779B9u + (unsigned)i * 0x85EBCA6Bu + (unsigned)round * 0xC2B2AE35u;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    return (int)(x ^ (x >> 13)) | 1; /* Never 0, which is what a hole reads as. */
}

static void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* Ends the program; it says so once, and only if every rank came here. */
static void finish(const char *name)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: well\n", name);
    MPI_Finalize();
}
#endif
