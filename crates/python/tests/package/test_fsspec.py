"""The fsspec protocol: fsspec's own abstract tests, and what they do not ask."""

import datetime
import io
import os
import pickle
import time
import uuid

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.tests import abstract

from forebay.fsspec import ForebayFileSystem


class _Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, service):
        return fsspec.filesystem("forebay", store=service.store, member=0)

    @pytest.fixture
    def fs_path(self, fs):
        path = f"/{uuid.uuid4().hex}"
        fs.makedirs(path)
        return path

    @pytest.fixture(scope="class")
    def local_fs(self):
        return LocalFileSystem(auto_mkdir=True)

    @pytest.fixture
    def local_join(self):
        return lambda *args: make_path_posix(os.path.join(*args))

    @pytest.fixture
    def local_path(self, tmpdir):
        return tmpdir


class TestCopy(abstract.AbstractCopyTests, _Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, _Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, _Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, _Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, _Fixtures):
    pass


@pytest.fixture
def fs(service):
    return fsspec.filesystem("forebay", store=service.store, member=0)


@pytest.fixture
def elsewhere(service):
    return fsspec.filesystem("forebay", store=service.store, member=1)


def test_the_protocol_is_registered_by_the_package(service, fs, place):
    assert isinstance(fs, ForebayFileSystem)
    with fsspec.open(f"forebay://{place}/f", "wt", store=service.store) as file:
        file.write("by url")
    found, path = fsspec.core.url_to_fs(f"forebay://{place}/f", store=service.store, member=1)
    assert path == f"{place}/f" and found.cat_file(path) == b"by url"
    assert found.unstrip_protocol(path) == f"forebay://{place}/f"
    assert ForebayFileSystem._strip_protocol(["forebay:///a/", "b", "forebay://c/d"]) == ["/a", "/b", "/c/d"]


def test_what_is_written_here_is_listed_and_read_there(fs, elsewhere, place):
    fs.pipe({f"{place}/a/1": b"one", f"{place}/a/2": b"twotwo", f"{place}/b": b""})
    assert elsewhere.ls(place, detail=False) == [f"{place}/a", f"{place}/b"]
    assert {i["name"]: (i["type"], i["size"]) for i in elsewhere.ls(f"{place}/a", detail=True)} == {
        f"{place}/a/1": ("file", 3),
        f"{place}/a/2": ("file", 6),
    }
    assert elsewhere.find(place) == [f"{place}/a/1", f"{place}/a/2", f"{place}/b"]
    assert elsewhere.glob(f"{place}/a/*") == [f"{place}/a/1", f"{place}/a/2"]
    assert elsewhere.cat(f"{place}/a/*") == {f"{place}/a/1": b"one", f"{place}/a/2": b"twotwo"}
    assert elsewhere.du(place) == 9
    assert elsewhere.cat_ranges([f"{place}/a/2"] * 2, [0, 4], [3, 6]) == [b"two", b"wo"]


def test_parts_of_files_are_counted_from_either_end(fs, place):
    fs.pipe_file(f"{place}/f", b"0123456789")
    for start, end in [(2, 5), (None, 4), (7, None), (-3, None), (None, -8), (-5, -2), (5, 100), (20, 30), (6, 3)]:
        assert fs.cat_file(f"{place}/f", start, end) == b"0123456789"[start:end], (start, end)
    assert fs.head(f"{place}/f", 3) == b"012" and fs.tail(f"{place}/f", 3) == b"789"
    assert fs.read_block(f"{place}/f", 3, 4) == b"3456"


def test_names_are_moved_removed_and_touched(fs, elsewhere, place):
    fs.pipe({f"{place}/d/x": b"x", f"{place}/y": b"y"})
    fs.mv(f"{place}/y", f"{place}/d/")
    fs.mv(f"{place}/d/x", f"{place}/z")
    assert elsewhere.find(place) == [f"{place}/d/y", f"{place}/z"]
    with pytest.raises(ValueError):
        fs.rm(f"{place}/d")
    fs.rm([f"{place}/d", f"{place}/z"], recursive=True)
    assert elsewhere.ls(place) == []
    before = datetime.datetime.now(tz=datetime.timezone.utc) - datetime.timedelta(seconds=1)
    fs.touch(f"{place}/t")
    assert elsewhere.modified(f"{place}/t") >= before and elsewhere.created(f"{place}/t") >= before
    fs.pipe_file(f"{place}/t", b"kept")
    fs.touch(f"{place}/t", truncate=False)
    assert elsewhere.cat_file(f"{place}/t") == b"kept"
    with pytest.raises(FileExistsError):
        fs.mkdir(place)
    with pytest.raises(FileNotFoundError):
        fs.info(f"{place}/none")


def test_a_file_has_another_key_once_it_has_changed(fs, elsewhere, place):
    fs.pipe_file(f"{place}/f", b"1")
    first = elsewhere.ukey(f"{place}/f"), elsewhere.checksum(f"{place}/f")
    assert first == (elsewhere.ukey(f"{place}/f"), elsewhere.checksum(f"{place}/f"))
    fs.pipe_file(f"{place}/f", b"2")
    assert first[0] != elsewhere.ukey(f"{place}/f") and first[1] != elsewhere.checksum(f"{place}/f")


def test_appending_in_a_transaction_is_refused_and_the_rest_is_not_kept(fs, place):
    fs.pipe(f"{place}/log", b"before")
    with pytest.raises(ValueError, match="append outside of it"), fs.transaction:
        with fs.open(f"{place}/new", "wb") as file:
            file.write(b"1")
        fs.open(f"{place}/log", "ab")
    assert fs.ls(place, detail=False) == [f"{place}/log"]
    with fs.open(f"{place}/log", "ab") as file:
        assert file.tell() == len(b"before")
        file.write(b", after")
    assert fs.cat(f"{place}/log") == b"before, after"


def test_a_transaction_that_fails_at_its_end_leaves_no_other_names(fs, elsewhere, place):
    fs.pipe_file(f"{place}/there", b"before")
    with pytest.raises(FileExistsError), fs.transaction:
        for name in ("there", "new"):
            with fs.open(f"{place}/{name}", "xb") as file:
                file.write(b"after")
    assert elsewhere.cat_file(f"{place}/there") == b"before"
    names = {os.path.basename(name) for name in elsewhere.ls(place, detail=False)}
    assert names - {"new"} == {"there"}


def test_a_transaction_shows_its_files_at_its_end(fs, elsewhere, place):
    with fs.transaction:
        with fs.open(f"{place}/f", "wb") as file:
            file.write(b"whole")
        assert not elsewhere.exists(f"{place}/f")
    assert elsewhere.cat_file(f"{place}/f") == b"whole"
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{place}/g", "wb") as file:
            file.write(b"lost")
        1 / 0
    assert elsewhere.ls(place, detail=False) == [f"{place}/f"]


def test_links_are_shown_as_what_they_lead_to(fs, elsewhere, place):
    fs.pipe_file(f"{place}/f", b"12")
    fs.symlink(f"{place}/f", f"{place}/l")
    fs.symlink(f"{place}/none", f"{place}/dangling")
    info = elsewhere.info(f"{place}/l")
    assert (info["type"], info["size"], info["islink"], info["destination"]) == ("file", 2, True, f"{place}/f")
    assert elsewhere.info(f"{place}/dangling")["type"] == "other"
    assert elsewhere.lexists(f"{place}/dangling") and not elsewhere.exists(f"{place}/dangling")
    fs.rm(f"{place}/l")
    assert elsewhere.exists(f"{place}/f")


def test_a_file_system_is_pickled_by_its_store(fs, place):
    fs.pipe_file(f"{place}/f", b"x")
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs and again.cat_file(f"{place}/f") == b"x"
    assert ForebayFileSystem.from_json(fs.to_json()).cat_file(f"{place}/f") == b"x"
    opened = fsspec.open(f"forebay://{place}/f", store=fs.storage_options["store"])
    with pickle.loads(pickle.dumps(opened)) as file:
        assert file.read() == b"x"


def test_streams_go_in_and_out(fs, elsewhere, place, tmp_path):
    data = os.urandom(9_000_001)
    local = tmp_path / "f"
    local.write_bytes(data)
    seen = []

    class Progress(fsspec.callbacks.Callback):
        def call(self, *args, **kwargs):
            seen.append((self.size, self.value))

    fs.put_file(str(local), f"{place}/f", callback=Progress())
    assert seen[-1] == (len(data), len(data))
    with pytest.raises(FileExistsError):
        fs.put_file(str(local), f"{place}/f", mode="create")
    out = io.BytesIO()
    elsewhere.get_file(f"{place}/f", out)
    assert out.getvalue() == data
    elsewhere.get_file(f"{place}/f", str(tmp_path / "new" / "g"))
    assert (tmp_path / "new" / "g").read_bytes() == data
    assert time.time() - elsewhere.info(f"{place}/f")["mtime"] < 3600
