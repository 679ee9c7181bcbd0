/* PnetCDF: all ranks write strided parts of shared variables in one file, collectively, independently and by requests that
 * are carried out together, and each verifies what another rank wrote.
 *
 *   pnetcdf [fill]
 *
 * With `fill`, all ranks fill the variables first, each a part, and then write where others filled, with no sync between:
 * that needs a file system where each sees at once what another wrote. The file `netcdf` holds the same bytes in every run. */
#include "job.h"
#include <pnetcdf.h>

enum { ROWS = 40, COLUMNS = 150, TIMES = 5 };

/* A PnetCDF call that must succeed. */
#define NC(call) nc((call), #call, __LINE__)
static void nc(int code, const char *call, int line)
{
    MUST(code == NC_NOERR, "line %d: %s: %s", line, call, ncmpi_strerror(code));
}

/* The variables of the file, by number. */
enum { COLLECTIVE, INDEPENDENT, REQUESTS, RECORDS, VARIABLES };
static const char *names[VARIABLES] = {"collective", "independent", "requests", "records"};

static int numbers[TIMES][ROWS * COLUMNS];

static void expect(const int *found, int who, int round, const char *name)
{
    int wrong = 0, first = 0, last = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (found[i] != number(who, i, round)) {
            first = wrong++ ? first : i;
            last = i;
        }
    MUST(!wrong, "%s: %d numbers of rank %d are wrong, from %d (%x) to %d (%x)", name, wrong, who, first, found[first], last,
         found[last]);
}

/* Writes or reads what is of `who`: its columns of all, or its rows. */
static void parts(int file, const int *id, int who, int writing)
{
    const MPI_Offset count[2] = {ROWS, COLUMNS}, from_column[2] = {0, who}, by_column[2] = {1, ranks};
    const MPI_Offset from_row[2] = {who, 0}, by_row[2] = {ranks, 1};
    for (int t = 0; t < TIMES; t++)
        for (int i = 0; i < ROWS * COLUMNS; i++)
            numbers[t][i] = writing ? number(who, i, t) : 0;
    int *n = numbers[0];
    if (writing)
        NC(ncmpi_put_vars_int_all(file, id[COLLECTIVE], from_column, count, by_column, n));
    else
        NC(ncmpi_get_vars_int_all(file, id[COLLECTIVE], from_column, count, by_column, n));
    expect(n, who, 0, names[COLLECTIVE]);

    n = numbers[1];
    NC(ncmpi_begin_indep_data(file));
    if (writing)
        NC(ncmpi_put_vars_int(file, id[INDEPENDENT], from_column, count, by_column, n));
    else
        NC(ncmpi_get_vars_int(file, id[INDEPENDENT], from_column, count, by_column, n));
    NC(ncmpi_end_indep_data(file));
    expect(n, who, 1, names[INDEPENDENT]);

    n = numbers[2];
    int request[2], status[2];
    const MPI_Offset half[2] = {ROWS / 2, COLUMNS}, second[2] = {who + ranks * (ROWS / 2), 0};
    int *rest = n + ROWS / 2 * COLUMNS;
    if (writing) {
        NC(ncmpi_iput_vars_int(file, id[REQUESTS], second, half, by_row, rest, &request[0]));
        NC(ncmpi_iput_vars_int(file, id[REQUESTS], from_row, half, by_row, n, &request[1]));
    } else {
        NC(ncmpi_iget_vars_int(file, id[REQUESTS], second, half, by_row, rest, &request[0]));
        NC(ncmpi_iget_vars_int(file, id[REQUESTS], from_row, half, by_row, n, &request[1]));
    }
    NC(ncmpi_wait_all(file, 2, request, status));
    NC(status[0]);
    NC(status[1]);
    expect(n, who, 2, names[REQUESTS]);

    /* The file grows by a record at a time. */
    for (int t = 0; t < TIMES; t++) {
        const MPI_Offset from[2] = {t, who}, by[2] = {1, ranks}, one[2] = {1, ROWS * COLUMNS};
        if (writing)
            NC(ncmpi_put_vars_int_all(file, id[RECORDS], from, one, by, numbers[t]));
        else
            NC(ncmpi_get_vars_int_all(file, id[RECORDS], from, one, by, numbers[t]));
        expect(numbers[t], who, t, names[RECORDS]);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int file, rows, columns, many_rows, many_columns, time, all, id[VARIABLES];
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "cb_config_list", "*:4");
    NC(ncmpi_create(MPI_COMM_WORLD, path("netcdf"), NC_NOCLOBBER | NC_64BIT_DATA, hints, &file));
    MPI_Info_free(&hints);
    NC(ncmpi_def_dim(file, "rows", ROWS, &rows));
    NC(ncmpi_def_dim(file, "columns", COLUMNS, &columns));
    NC(ncmpi_def_dim(file, "many_rows", ROWS * ranks, &many_rows));
    NC(ncmpi_def_dim(file, "many_columns", COLUMNS * ranks, &many_columns));
    NC(ncmpi_def_dim(file, "all", ROWS * COLUMNS * ranks, &all));
    NC(ncmpi_def_dim(file, "time", NC_UNLIMITED, &time));
    /* No byte of a variable stays unwritten: what would be there is left to the library. */
    int wide[2] = {rows, many_columns}, high[2] = {many_rows, columns}, records[2] = {time, all};
    const int *shapes[VARIABLES] = {wide, wide, high, records};
    for (int v = 0; v < VARIABLES; v++)
        NC(ncmpi_def_var(file, names[v], NC_INT, 2, shapes[v], &id[v]));
    NC(ncmpi_put_att_text(file, NC_GLOBAL, "title", 5, "waves"));
    NC(ncmpi_set_fill(file, argc > 1 && !strcmp(argv[1], "fill") ? NC_FILL : NC_NOFILL, NULL));
    NC(ncmpi_enddef(file));
    parts(file, id, rank, 1);
    NC(ncmpi_close(file));
    MPI_Barrier(MPI_COMM_WORLD);
    NC(ncmpi_open(MPI_COMM_WORLD, path("netcdf"), NC_NOWRITE, MPI_INFO_NULL, &file));
    for (int v = 0; v < VARIABLES; v++)
        NC(ncmpi_inq_varid(file, names[v], &id[v]));
    parts(file, id, other(), 0);
    NC(ncmpi_close(file));
    finish("pnetcdf");
}
