"""Libraries that scientists use, on files of the service: what they write on one node is right on the other."""

import os

import dask
import fsspec
import h5py
import numpy as np
import pytest


@pytest.fixture
def array():
    return np.random.default_rng(7).normal(size=(300, 700))


@pytest.fixture
def options(service):
    return {"store": service.store, "member": 0}


@pytest.fixture
def options_far(service):
    return {"store": service.store, "member": 1}


def _write_hdf5(file, array):
    file.attrs["who"] = "forebay"
    file.create_dataset("plain", data=array)
    file.create_dataset("packed", data=array, chunks=(64, 128), compression="gzip", shuffle=True)
    grows = file.create_dataset("grows", shape=(0, 700), maxshape=(None, 700), chunks=(32, 700), dtype="f8")
    for start in range(0, len(array), 100):
        grows.resize(start + 100, axis=0)
        grows[start:] = array[start : start + 100]


def _check_hdf5(file, array):
    assert file.attrs["who"] == "forebay"
    for name in ("plain", "packed", "grows"):
        assert np.array_equal(file[name][...], array), name
        assert np.array_equal(file[name][50:60, ::7], array[50:60, ::7]), name


def test_hdf5_on_file_objects(near, far, place, array):
    for buffering in (0, -1):
        path = f"{place}/h{buffering}.h5"
        with near.open(path, "w+b", buffering) as raw, h5py.File(raw, "w", driver="fileobj") as file:
            _write_hdf5(file, array)
        with near.open(path, "r+b", buffering) as raw, h5py.File(raw, "r+", driver="fileobj") as file:
            file["plain"][0, 0] = 5.0
        changed = array.copy()
        changed[0, 0] = 5.0
        with far.open(path, "rb", buffering) as raw, h5py.File(raw, "r", driver="fileobj") as file:
            assert file["plain"][0, 0] == 5.0
            file_array = file["plain"][...]
        assert np.array_equal(file_array, changed)
        with far.open(path, "rb", buffering) as raw, h5py.File(raw, "r") as file:
            assert np.array_equal(file["packed"][...], array)


def test_hdf5_through_the_mount_and_back(service, near, far, place, array):
    with h5py.File(f"{service.mounts[0]}{place}/m.h5", "w") as file:
        _write_hdf5(file, array)
    with far.open(f"{place}/m.h5", "rb") as raw, h5py.File(raw, "r", driver="fileobj") as file:
        _check_hdf5(file, array)
    with near.open(f"{place}/o.h5", "w+b") as raw, h5py.File(raw, "w", driver="fileobj") as file:
        _write_hdf5(file, array)
    with h5py.File(f"{service.mounts[1]}{place}/o.h5", "r") as file:
        _check_hdf5(file, array)


def test_numpy_saves_loads_and_dumps(near, far, place, array):
    with near.open(f"{place}/a.npy", "wb") as file:
        np.save(file, array)
    with far.open(f"{place}/a.npy", "rb") as file:
        assert np.array_equal(np.load(file), array)
    with near.open(f"{place}/z.npz", "wb") as file:
        np.savez_compressed(file, one=array, two=array[::2])
    with far.open(f"{place}/z.npz", "rb") as file, np.load(file) as both:
        assert np.array_equal(both["one"], array) and np.array_equal(both["two"], array[::2])
    with near.open(f"{place}/raw", "wb") as file:
        file.write(b"head")
        array.tofile(file)
        file.write(b"tail")
    with far.open(f"{place}/raw", "rb") as file:
        assert file.read(4) == b"head"
        assert np.array_equal(np.fromfile(file, count=array.size).reshape(array.shape), array)
        assert file.read() == b"tail"
    with near.open(f"{place}/t", "w") as file:
        np.savetxt(file, array[:3])
    with far.open(f"{place}/t") as file:
        assert np.array_equal(np.loadtxt(file), array[:3])
    with far.open_raw(f"{place}/a.npy") as file:
        # Into an array's own memory, behind the head that numpy wrote.
        back = np.empty_like(array)
        assert file.preadinto(back, file.stat().st_size - array.nbytes) == array.nbytes
        assert np.array_equal(back, array)


def test_arrays_are_mapped_through_the_mount(service, near, place, array):
    with near.open(f"{place}/a.npy", "wb") as file:
        np.save(file, array)
    mapped = np.load(f"{service.mounts[1]}{place}/a.npy", mmap_mode="r")
    assert np.array_equal(mapped[100:200, 3], array[100:200, 3])


def test_dask_writes_and_reads_with_processes(place, options, options_far):
    import dask.bag as db

    url = f"forebay://{place}/bag/*.txt"
    with dask.config.set(scheduler="processes", num_workers=4):
        bag = db.from_sequence(range(1000), npartitions=8).map(str)
        bag.to_textfiles(url, storage_options=options)
        back = db.read_text(url, storage_options=options_far).map(str.strip).map(int).compute()
    assert back == list(range(1000))
    assert len(fsspec.filesystem("forebay", **options_far).ls(f"{place}/bag")) == 8


def test_parquet_by_dask_pandas_and_arrow(place, options, options_far):
    import dask.dataframe as dd
    import pandas as pd
    import pyarrow.dataset
    import pyarrow.parquet

    frame = pd.DataFrame({"n": range(1000), "x": np.linspace(0, 1, 1000), "s": [f"row {i % 7}" for i in range(1000)]})
    url = f"forebay://{place}"
    with dask.config.set(scheduler="processes", num_workers=2):
        dd.from_pandas(frame, npartitions=4).to_parquet(f"{url}/dask", storage_options=options)
        found = dd.read_parquet(f"{url}/dask", storage_options=options_far, filters=[("n", ">=", 990)]).compute()
    assert sorted(found["n"]) == list(range(990, 1000))
    frame.to_parquet(f"{url}/one.parquet", storage_options=options)
    read = pd.read_parquet(f"{url}/one.parquet", storage_options=options_far)
    assert list(read["n"]) == list(frame["n"]) and list(read["s"]) == list(frame["s"])
    assert np.array_equal(read["x"], frame["x"])
    fs, far = (fsspec.filesystem("forebay", **o) for o in (options, options_far))
    table = pyarrow.Table.from_pandas(frame)
    pyarrow.parquet.write_to_dataset(table, f"{place}/set", partition_cols=["s"], filesystem=fs)
    dataset = pyarrow.dataset.dataset(f"{place}/set", filesystem=far, partitioning="hive")
    assert dataset.count_rows() == 1000
    assert dataset.to_table(filter=pyarrow.dataset.field("s") == "row 3").num_rows == 143
    frame.to_csv(f"{url}/c.csv", storage_options=options, index=False)
    assert list(pd.read_csv(f"{url}/c.csv", storage_options=options_far)["n"]) == list(frame["n"])


def test_safetensors_by_bytes_and_through_the_mount(service, near, far, place, array):
    import safetensors.numpy

    tensors = {"a": array, "b": array.astype("f4")[:10]}
    near.write_bytes(f"{place}/t.safetensors", safetensors.numpy.save(tensors))
    found = safetensors.numpy.load(far.read_bytes(f"{place}/t.safetensors"))
    assert all(np.array_equal(found[k], v) for k, v in tensors.items()) and len(found) == 2
    with safetensors.safe_open(f"{service.mounts[1]}{place}/t.safetensors", "numpy") as file:
        assert np.array_equal(file.get_slice("a")[10:20], array[10:20])
    safetensors.numpy.save_file(tensors, f"{service.mounts[0]}{place}/m.safetensors")
    assert far.read_bytes(f"{place}/m.safetensors") == near.read_bytes(f"{place}/t.safetensors")


def test_pickles_and_archives(near, far, place, array):
    import pickle
    import tarfile
    import zipfile

    with near.open(f"{place}/p", "wb") as file:
        pickle.dump(array, file, protocol=5)
    with far.open(f"{place}/p", "rb") as file:
        assert np.array_equal(pickle.load(file), array)
    with near.open(f"{place}/z", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("in", os.urandom(10_000))
    with far.open(f"{place}/z", "rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.namelist() == ["in"]
    with near.open(f"{place}/t", "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(__file__, "in")
    with far.open(f"{place}/t", "rb") as file, tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == ["in"]
