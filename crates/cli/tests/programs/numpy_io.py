"""MPI-IO of numpy arrays by mpi4py: interleaved columns by a vector view, squares by a subarray view, and one-sided writes
with sync, barrier, sync. Each rank verifies what another one wrote.

Rank k works below the k-th directory of FOREBAY_MOUNTS. The files `columns` and `squares` hold the same bytes in every run.
"""
import os
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
other = (rank + 1) % ranks
ROWS, SIDE, ROUNDS = 300, 80, 5


def must(holds, what):
    """Ends the whole job if something does not hold."""
    if not holds:
        print(f"rank {rank}: {what}", file=sys.stderr, flush=True)
        world.Abort(1)


def opened(name, mode):
    mounts = os.environ["FOREBAY_MOUNTS"].split(":")
    return MPI.File.Open(world, os.path.join(mounts[rank % len(mounts)], name), mode)


def array(who, shape, round=0):
    """What `who` writes; never 0, which is what a hole reads as."""
    numbers = np.arange(np.prod(shape), dtype=np.float64) * ranks + who
    return (np.sin(numbers) + 2 + round).reshape(shape)


NEW = MPI.MODE_CREATE | MPI.MODE_EXCL | MPI.MODE_RDWR

# Column k of the table, again and again, is of rank k.
column = MPI.DOUBLE.Create_vector(ROWS, 1, ranks).Commit()
file = opened("columns", NEW)
file.Set_view(rank * MPI.DOUBLE.size, MPI.DOUBLE, column)
file.Write(array(rank, (ROWS // 2,)))
file.Write(array(rank, (ROWS,))[ROWS // 2 :].copy())
file.Close()
world.Barrier()
file = opened("columns", MPI.MODE_RDONLY)
table = np.zeros((ROWS, ranks))
file.Read_all(table)
for who in range(ranks):
    must(np.array_equal(table[:, who], array(who, (ROWS,))), f"columns: that of rank {who} is wrong")
file.Close()

# One square of a large array for each rank.
grid = MPI.Compute_dims(ranks, 2)


def square(who):
    sizes = [n * SIDE for n in grid]
    at = [who // grid[1] * SIDE, who % grid[1] * SIDE]
    return MPI.DOUBLE.Create_subarray(sizes, [SIDE, SIDE], at).Commit()


file = opened("squares", NEW)
file.Set_view(0, MPI.DOUBLE, square(rank))
file.Write_at_all(0, array(rank, (SIDE, SIDE)))
file.Close()
world.Barrier()
file = opened("squares", MPI.MODE_RDONLY)
file.Set_view(0, MPI.DOUBLE, square(other))
found = np.zeros((SIDE, SIDE))
file.Read_at_all(0, found)
must(np.array_equal(found, array(other, (SIDE, SIDE))), f"squares: that of rank {other} is wrong")
file.Close()

# Seen without closing.
file = opened("rounds", NEW)
for round in range(ROUNDS):
    mine = array(rank, (1000,), round)
    file.Write_at(rank * mine.nbytes, mine)
    file.Sync()
    world.Barrier()
    file.Sync()
    theirs = np.zeros(1000)
    file.Read_at(other * theirs.nbytes, theirs)
    must(np.array_equal(theirs, array(other, (1000,), round)), f"round {round}: that of rank {other} is wrong")
    world.Barrier()
file.Close()
world.Barrier()
if rank == 0:
    print("numpy: well")
