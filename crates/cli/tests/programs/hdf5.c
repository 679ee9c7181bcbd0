/* Parallel HDF5: all ranks write strided hyperslabs of shared datasets in one file, independently and collectively, and each
 * verifies what another rank wrote.
 *
 *   hdf5 [fill]
 *
 * With `fill`, chunks are filled with zeros when they are made, as HDF5 does if it is not told otherwise: by all ranks, each a
 * part, and then others write there with no sync between. That needs a file system where each sees at once what another
 * wrote. The file `hdf5` holds the same bytes in every run: nothing in it keeps the time. */
#include "job.h"
#include <hdf5.h>

enum { ROWS = 48, COLUMNS = 208, SETS = 4 };

/* An HDF5 call that must succeed. */
#define H5(call) h5((call), #call, __LINE__)
static hid_t h5(hid_t got, const char *call, int line)
{
    MUST(got >= 0, "line %d: %s failed", line, call);
    return got;
}

/* The datasets: how each is laid out and written. */
static const struct {
    const char *name;
    int chunked, collective, individual, by_row;
} sets[SETS] = {
    {"independent", 0, 0, 0, 1},
    {"collective", 0, 1, 0, 0},
    /* One MPI call with a strided view for each rank, on its own: read, modify, write under locks. */
    {"individual", 0, 1, 1, 0},
    {"chunked", 1, 1, 0, 0},
};

static hid_t opened(int make)
{
    hid_t access = H5(H5Pcreate(H5P_FILE_ACCESS));
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "cb_config_list", "*:4");
    H5(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, hints));
    MPI_Info_free(&hints);
    const char *name = path("hdf5");
    hid_t file = H5(make ? H5Fcreate(name, H5F_ACC_EXCL, H5P_DEFAULT, access) : H5Fopen(name, H5F_ACC_RDONLY, access));
    H5(H5Pclose(access));
    return file;
}

/* Writes or reads the part of `who`: every `ranks`-th row or column from its own on. */
static void part(hid_t file, int set, int who, int writing)
{
    static int numbers[ROWS * COLUMNS];
    int count = ROWS * COLUMNS;
    hid_t data = H5(H5Dopen2(file, sets[set].name, H5P_DEFAULT));
    hid_t space = H5(H5Dget_space(data));
    int rows = sets[set].by_row;
    hsize_t from[2] = {rows ? who : 0, rows ? 0 : who};
    hsize_t stride[2] = {rows ? ranks : 1, rows ? 1 : ranks};
    hsize_t counts[2] = {ROWS, COLUMNS};
    H5(H5Sselect_hyperslab(space, H5S_SELECT_SET, from, stride, counts, NULL));
    hsize_t memory_count = count;
    hid_t memory = H5(H5Screate_simple(1, &memory_count, NULL));
    hid_t how = H5(H5Pcreate(H5P_DATASET_XFER));
    H5(H5Pset_dxpl_mpio(how, sets[set].collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
    if (sets[set].individual)
        H5(H5Pset_dxpl_mpio_collective_opt(how, H5FD_MPIO_INDIVIDUAL_IO));
    for (int i = 0; i < count; i++)
        numbers[i] = writing ? number(who, i, set) : 0;
    if (writing) {
        H5(H5Dwrite(data, H5T_NATIVE_INT, memory, space, how, numbers));
    } else {
        H5(H5Dread(data, H5T_NATIVE_INT, memory, space, how, numbers));
        for (int i = 0; i < count; i++)
            MUST(numbers[i] == number(who, i, set), "%s: number %d of rank %d is %x", sets[set].name, i, who, numbers[i]);
    }
    H5(H5Pclose(how));
    H5(H5Sclose(memory));
    H5(H5Sclose(space));
    H5(H5Dclose(data));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int fill = argc > 1 && !strcmp(argv[1], "fill");
    hid_t file = opened(1);
    for (int set = 0; set < SETS; set++) {
        hsize_t sizes[2] = {sets[set].by_row ? ROWS * ranks : ROWS, sets[set].by_row ? COLUMNS : COLUMNS * ranks};
        hsize_t chunk[2] = {16, 64};
        hid_t space = H5(H5Screate_simple(2, sizes, NULL));
        hid_t create = H5(H5Pcreate(H5P_DATASET_CREATE));
        H5(H5Pset_obj_track_times(create, 0));
        if (!fill)
            H5(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER));
        if (sets[set].chunked)
            H5(H5Pset_chunk(create, 2, chunk));
        hid_t data = H5(H5Dcreate2(file, sets[set].name, H5T_STD_I32LE, space, H5P_DEFAULT, create, H5P_DEFAULT));
        H5(H5Dclose(data));
        H5(H5Pclose(create));
        H5(H5Sclose(space));
        part(file, set, rank, 1);
    }
    /* Seen by the others while the file is open for writing: HDF5's flush is MPI's sync. */
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MPI_Barrier(MPI_COMM_WORLD);
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
    for (int set = 0; set < SETS; set++)
        part(file, set, other(), 0);
    H5(H5Fclose(file));
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened(0);
    for (int set = 0; set < SETS; set++)
        part(file, set, other(), 0);
    H5(H5Fclose(file));
    finish("hdf5");
}
