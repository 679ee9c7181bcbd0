"""One measured process of the benchmark `clients` in Python: does the job that src/job.rs describes.

    worker.py python|fsspec JOB

`python`: files of the package forebay, unbuffered, read into the process's own memory. `fsspec`: the protocol forebay://, as programs
use it.
"""

import json
import os
import sys
import time

SEED = 0x9E3779B97F4A7C15
RANDOM_READS = 4096
MASK = (1 << 64) - 1


class SeededNumbers:
    """As src/random.rs."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)


def offsets(job, records):
    """Offsets of this process's records, in order."""
    rank, of, record, layout = job["rank"], job["of"], records["record"], records["layout"]
    each = records["bytes"] // record // of
    if layout == "Own":
        return [i * record for i in range(each)]
    if layout == "Segments":
        return [(rank * each + i) * record for i in range(each)]
    if layout == "Strided":
        return [(i * of + rank) * record for i in range(each)]
    random = SeededNumbers(SEED ^ rank)
    return [random.next() % (each * of) * record for _ in range(min(each, RANDOM_READS))]


class Python:
    """Files of the package."""

    def __init__(self, store):
        import forebay

        self.fs = forebay.connect(store)
        self.create = lambda path: self.fs.open_raw(path, "xb").close()
        self.stat = self.fs.lstat
        self.unlink = self.fs.remove
        self.is_dir = self.fs.isdir

    def write(self, path, places, buffer):
        with self.fs.open_raw(path, "ab") as file:
            pass
        with self.fs.open_raw(path, "r+b") as file:
            at = 0
            for offset in places:
                buffer[:8] = offset.to_bytes(8, "little")
                if offset != at:
                    file.seek(offset)
                file.write(buffer)
                at = offset + len(buffer)
            file.commit()

    def read(self, path, places, buffer):
        with self.fs.open_raw(path) as file:
            at = 0
            for offset in places:
                if offset != at:
                    file.seek(offset)
                if file.readinto(buffer) != len(buffer):
                    raise EOFError(path)
                at = offset + len(buffer)
                yield offset, buffer


class Fsspec:
    """The protocol."""

    def __init__(self, store):
        import fsspec

        self.fs = fsspec.filesystem("forebay", store=store)
        self.create = lambda path: self.fs.open(path, "xb").close()
        self.stat = self.fs.info
        self.unlink = self.fs.rm_file
        self.is_dir = self.fs.isdir

    def write(self, path, places, buffer):
        with self.fs.open(path, "ab"):
            pass
        with self.fs.open(path, "r+b") as file:
            for offset in places:
                buffer[:8] = offset.to_bytes(8, "little")
                file.seek(offset)
                file.write(buffer)
            file.flush()
            file.raw.commit()

    def read(self, path, places, buffer):
        with self.fs.open(path, "rb") as file:
            for offset in places:
                file.seek(offset)
                found = file.read(len(buffer))
                if len(found) != len(buffer):
                    raise EOFError(path)
                yield offset, found


def run(access, job):
    """Does the task; bytes or files done."""
    ((task, what),) = job["task"].items()
    if task in ("Write", "Read"):
        name = f"data.{job['rank']}" if what["layout"] == "Own" else "data"
        path = os.path.join(job["dir"], name)
        places = job["places"]
        if task == "Write":
            access.write(path, places, job["buffer"])
        else:
            for offset, found in access.read(path, places, job["buffer"]):
                # Random records were written as parts of larger ones, so only some of them say where they lie.
                says_nothing = what["layout"] == "Random" and offset % (1 << 20)
                if not says_nothing and int.from_bytes(found[:8], "little") != offset:
                    raise ValueError(f"wrong bytes at {offset}")
        return len(places) * what["record"]
    rank = (job["rank"] + 1) % job["of"] if task == "Stat" else job["rank"]
    call = {"Create": access.create, "Stat": access.stat, "Unlink": access.unlink}[task]
    own = os.path.join(job["dir"], str(rank))
    directory = own if access.is_dir(own) else job["dir"]
    for number in range(what // job["of"]):
        call(f"{directory}/f{rank}.{number}")
    return what // job["of"]


def main():
    access = {"python": Python, "fsspec": Fsspec}[sys.argv[1]]
    job = json.loads(sys.argv[2])
    what = next(iter(job["task"].values()))
    if isinstance(what, dict):
        job["buffer"] = bytearray(os.urandom(what["record"]))
        job["places"] = offsets(job, what)
    access = access(job["link"])
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("the benchmark went away")
    cpu, start = time.process_time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    done = run(access, job)
    end = time.clock_gettime(time.CLOCK_MONOTONIC)
    print(json.dumps({"start": start, "end": end, "cpu": time.process_time() - cpu, "done": done}), flush=True)


if __name__ == "__main__":
    main()
