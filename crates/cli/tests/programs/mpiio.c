/* MPI-IO on one shared file: strided and subarray views, independent and collective, shared file pointers, and the rules
 * of the standard for seeing what others wrote (sync, barrier, sync; atomic mode). Each rank verifies what others wrote.
 *
 *   mpiio [PART...]     all parts, or those named
 *   mpiio forever       writes one file again and again until it is killed
 *
 * The files of `independent`, `collective`, `blocks` and `ordered` hold the same bytes in every run. */
#include "job.h"

enum { BLOCK = 250, BLOCKS = 24, WRITES = 4, SIDE = 96, RECORDS = 32, ROUNDS = 6 };

/* Opens this rank's name of the file. Data sieving is on, and several ranks write for the others in collective calls. */
static MPI_File opened(const char *name, int mode)
{
    MPI_File file;
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "romio_ds_write", "enable");
    MPI_Info_set(hints, "romio_ds_read", "enable");
    MPI_Info_set(hints, "cb_config_list", "*:4");
    MPI_Info_set(hints, "ind_wr_buffer_size", "65536");
    CALL(MPI_File_open(MPI_COMM_WORLD, path(name), mode, hints, &file));
    MPI_Info_free(&hints);
    return file;
}

static MPI_File made(const char *name)
{
    return opened(name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR);
}

/* Shows `who` its own part of the file: BLOCK numbers of every ranks * BLOCK. */
static void strided(MPI_File file, int who)
{
    MPI_Datatype every;
    CALL(MPI_Type_vector(BLOCKS, BLOCK, BLOCK * ranks, MPI_INT, &every));
    CALL(MPI_Type_commit(&every));
    MPI_Datatype view;
    CALL(MPI_Type_create_resized(every, 0, (MPI_Aint)BLOCKS * BLOCK * ranks * sizeof(int), &view));
    CALL(MPI_Type_commit(&view));
    CALL(MPI_File_set_view(file, (MPI_Offset)who * BLOCK * sizeof(int), MPI_INT, view, "native", MPI_INFO_NULL));
    MPI_Type_free(&every);
    MPI_Type_free(&view);
}

/* All ranks write interleaved blocks, in several calls each; then each reads another's, and the whole file. */
static void interleaved(const char *name, int collective)
{
    static int buffer[BLOCKS * BLOCK];
    MPI_File file = made(name);
    strided(file, rank);
    for (int w = 0; w < WRITES; w++) {
        for (int i = 0; i < BLOCKS * BLOCK; i++)
            buffer[i] = number(rank, i, w);
        if (collective)
            CALL(MPI_File_write_all(file, buffer, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE));
        else
            CALL(MPI_File_write(file, buffer, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE));
    }
    CALL(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);

    file = opened(name, MPI_MODE_RDONLY);
    MPI_Offset size;
    CALL(MPI_File_get_size(file, &size));
    MPI_Offset all = (MPI_Offset)WRITES * BLOCKS * BLOCK * ranks * sizeof(int);
    MUST(size == all, "%s has %lld bytes, not %lld", name, (long long)size, (long long)all);
    strided(file, other());
    for (int w = 0; w < WRITES; w++) {
        memset(buffer, 0, sizeof buffer);
        if (collective)
            CALL(MPI_File_read_all(file, buffer, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE));
        else
            CALL(MPI_File_read(file, buffer, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE));
        for (int i = 0; i < BLOCKS * BLOCK; i++)
            MUST(buffer[i] == number(other(), i, w), "%s: write %d of rank %d: number %d is %x", name, w, other(), i,
                 buffer[i]);
    }
    CALL(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int row = 0; row < WRITES * BLOCKS; row++)
        for (int who = 0; who < ranks; who++) {
            CALL(MPI_File_read(file, buffer, BLOCK, MPI_INT, MPI_STATUS_IGNORE));
            for (int i = 0; i < BLOCK; i++)
                MUST(buffer[i] == number(who, row % BLOCKS * BLOCK + i, row / BLOCKS), "%s: row %d of rank %d is wrong",
                     name, row, who);
        }
    CALL(MPI_File_close(&file));
}

static void independent(void) { interleaved("independent", 0); }
static void collective(void) { interleaved("collective", 1); }

/* A square of doubles in one piece a rank, the pieces side by side: collective subarray views. */
static void blocks(void)
{
    static double piece[SIDE][SIDE];
    int grid[2] = {0, 0};
    MPI_Dims_create(ranks, 2, grid);
    MPI_File file = made("blocks");
    for (int reading = 0; reading < 2; reading++) {
        int who = reading ? other() : rank;
        int sizes[2] = {grid[0] * SIDE, grid[1] * SIDE}, sub[2] = {SIDE, SIDE};
        int at[2] = {who / grid[1] * SIDE, who % grid[1] * SIDE};
        MPI_Datatype view;
        CALL(MPI_Type_create_subarray(2, sizes, sub, at, MPI_ORDER_C, MPI_DOUBLE, &view));
        CALL(MPI_Type_commit(&view));
        CALL(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
        MPI_Type_free(&view);
        for (int i = 0; i < SIDE * SIDE; i++)
            piece[i / SIDE][i % SIDE] = reading ? 0 : number(who, i, 7);
        if (!reading) {
            CALL(MPI_File_write_at_all(file, 0, piece, SIDE * SIDE, MPI_DOUBLE, MPI_STATUS_IGNORE));
            CALL(MPI_File_close(&file));
            MPI_Barrier(MPI_COMM_WORLD);
            file = opened("blocks", MPI_MODE_RDONLY);
            continue;
        }
        CALL(MPI_File_read_at_all(file, 0, piece, SIDE * SIDE, MPI_DOUBLE, MPI_STATUS_IGNORE));
        for (int i = 0; i < SIDE * SIDE; i++)
            MUST(piece[i / SIDE][i % SIDE] == number(who, i, 7), "blocks: number %d of rank %d is wrong", i, who);
    }
    CALL(MPI_File_close(&file));
}

/* A record of the shared file pointer. */
struct record {
    int who, turn, filler[30];
};

static struct record record(int who, int turn)
{
    struct record r = {.who = who, .turn = turn};
    for (int i = 0; i < 30; i++)
        r.filler[i] = number(who, i, turn);
    return r;
}

/* Records in the order of the ranks. */
static void ordered(void)
{
    MPI_File file = made("ordered");
    for (int turn = 0; turn < RECORDS; turn++) {
        struct record r = record(rank, turn);
        CALL(MPI_File_write_ordered(file, &r, sizeof r, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    CALL(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened("ordered", MPI_MODE_RDONLY);
    for (int k = 0; k < RECORDS * ranks; k++) {
        struct record r, whole = record(k % ranks, k / ranks);
        CALL(MPI_File_read_at(file, k * (MPI_Offset)sizeof r, &r, sizeof r, MPI_BYTE, MPI_STATUS_IGNORE));
        MUST(!memcmp(&r, &whole, sizeof r), "ordered: record %d is wrong", k);
    }
    CALL(MPI_File_close(&file));
}

/* Records as they come: each is there once. */
static void shared(void)
{
    MPI_File file = made("shared");
    for (int turn = 0; turn < RECORDS; turn++) {
        struct record r = record(rank, turn);
        CALL(MPI_File_write_shared(file, &r, sizeof r, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    CALL(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened("shared", MPI_MODE_RDONLY);
    MPI_Offset size;
    CALL(MPI_File_get_size(file, &size));
    MUST(size == (MPI_Offset)(RECORDS * ranks * sizeof(struct record)), "shared has %lld bytes", (long long)size);
    int *next = calloc(ranks, sizeof *next);
    for (int k = 0; k < RECORDS * ranks; k++) {
        struct record r;
        CALL(MPI_File_read_at(file, k * (MPI_Offset)sizeof r, &r, sizeof r, MPI_BYTE, MPI_STATUS_IGNORE));
        MUST(r.who >= 0 && r.who < ranks && r.turn == next[r.who], "shared: record %d is of %d, turn %d", k, r.who, r.turn);
        struct record whole = record(r.who, r.turn);
        MUST(!memcmp(&r, &whole, sizeof r), "shared: record %d is wrong", k);
        next[r.who]++;
    }
    free(next);
    CALL(MPI_File_close(&file));
}

/* Seen without closing: sync, barrier, sync, as the standard asks; and again after the bytes have changed. */
static void sync_barrier_sync(void)
{
    enum { MANY = 5000 };
    static int mine[MANY], theirs[MANY];
    MPI_File file = made("sync");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++)
            mine[i] = number(rank, i, round);
        CALL(MPI_File_write_at(file, (MPI_Offset)rank * sizeof mine, mine, MANY, MPI_INT, MPI_STATUS_IGNORE));
        CALL(MPI_File_sync(file));
        MPI_Barrier(MPI_COMM_WORLD);
        CALL(MPI_File_sync(file));
        CALL(MPI_File_read_at(file, (MPI_Offset)other() * sizeof mine, theirs, MANY, MPI_INT, MPI_STATUS_IGNORE));
        for (int i = 0; i < MANY; i++)
            MUST(theirs[i] == number(other(), i, round), "sync: round %d: number %d of rank %d is wrong", round, i, other());
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CALL(MPI_File_close(&file));
}

/* Atomic mode: all write the same bytes at once, and each reads those of one rank, whole; no sync in between. */
static void atomic_mode(void)
{
    enum { MANY = 40000 };
    static char mine[MANY], found[MANY];
    MPI_File file = made("atomic");
    CALL(MPI_File_set_atomicity(file, 1));
    for (int round = 0; round < ROUNDS; round++) {
        memset(mine, 'a' + (round * ranks + rank) % 26, MANY);
        CALL(MPI_File_write_at(file, 100, mine, MANY, MPI_BYTE, MPI_STATUS_IGNORE));
        CALL(MPI_File_read_at(file, 100, found, MANY, MPI_BYTE, MPI_STATUS_IGNORE));
        for (int i = 1; i < MANY; i++)
            MUST(found[i] == found[0], "atomic: round %d: byte %d is %c, byte 0 is %c", round, i, found[i], found[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        CALL(MPI_File_read_at(file, 100, found, MANY, MPI_BYTE, MPI_STATUS_IGNORE));
        char last = found[0];
        MPI_Bcast(&last, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
        for (int i = 0; i < MANY; i++)
            MUST(found[i] == last, "atomic: round %d: byte %d is %c, rank 0 sees %c", round, i, found[i], last);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CALL(MPI_File_close(&file));
}

/* Says on standard output when the first round is over. */
static void forever(void)
{
    for (int round = 0;; round++) {
        if (rank == 0 && round)
            CALL(MPI_File_delete(path("independent"), MPI_INFO_NULL));
        MPI_Barrier(MPI_COMM_WORLD);
        independent();
        if (rank == 0 && round == 0) {
            puts("mpiio: goes on");
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"independent", independent}, {"collective", collective},  {"blocks", blocks},      {"ordered", ordered},
        {"shared", shared},           {"sync", sync_barrier_sync}, {"atomic", atomic_mode},
    };
    start(&argc, &argv);
    if (argc == 2 && !strcmp(argv[1], "forever"))
        forever();
    for (unsigned p = 0; p < sizeof parts / sizeof *parts; p++) {
        int wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= !strcmp(argv[a], parts[p].name);
        if (wanted)
            parts[p].run();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    finish("mpiio");
}
