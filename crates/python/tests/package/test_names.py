"""Directories, attributes, and the service itself."""

import os
import pickle
import stat

import forebay
import pytest


def test_directories_are_listed_and_walked(near, far, place):
    near.makedirs(f"{place}/a/b")
    near.makedirs(f"{place}/a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        near.makedirs(f"{place}/a")
    near.write_bytes(f"{place}/a/f", b"12")
    near.symlink("b", f"{place}/a/link")
    assert far.listdir(f"{place}/a") == ["b", "f", "link"]
    entries = {entry.name: entry for entry in far.scandir(f"{place}/a")}
    assert entries["b"].is_dir() and entries["f"].is_file() and entries["link"].is_symlink()
    assert entries["link"].is_dir() and not entries["link"].is_dir(follow_symlinks=False)
    assert entries["f"].stat().st_size == 2 and entries["f"].inode() == far.stat(f"{place}/a/f").st_ino
    assert os.fspath(entries["f"]) == f"{place}/a/f"
    assert list(far.walk(f"{place}/a")) == [(f"{place}/a", ["b"], ["f", "link"]), (f"{place}/a/b", [], [])]
    near.rmtree(f"{place}/a")
    assert far.listdir(place) == []


def test_names_that_are_no_text_are_kept(near, place):
    name = os.fsdecode(b"\xff\xfe odd\n")
    near.write_bytes(f"{place}/{name}", b"x")
    assert near.listdir(place) == [name] and near.read_bytes(f"{place}/{name}") == b"x"


def test_names_move_and_link(near, far, place):
    near.write_bytes(f"{place}/f", b"f")
    near.link(f"{place}/f", f"{place}/g")
    assert far.stat(f"{place}/g").st_nlink == 2
    near.rename(f"{place}/g", f"{place}/h")
    near.symlink("h", f"{place}/s")
    assert far.readlink(f"{place}/s") == "h" and far.read_bytes(f"{place}/s") == b"f"
    assert stat.S_ISLNK(far.lstat(f"{place}/s").st_mode)
    near.remove(f"{place}/f")
    assert not far.exists(f"{place}/f") and far.isfile(f"{place}/h") and far.isdir(place)


def test_attributes(near, far, place):
    path = f"{place}/f"
    with near.open(path, "wb", permissions=0o600) as file:
        file.write(b"12345")
    found = far.stat(path)
    assert stat.S_IMODE(found.st_mode) == 0o600 and found.st_size == 5 and not found.laminated
    assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())
    near.chmod(path, 0o640)
    near.utime(path, ns=1_500_000_000_123_456_789)
    found = far.stat(path)
    assert stat.S_IMODE(found.st_mode) == 0o640 and found.st_mtime_ns == 1_500_000_000_123_456_789
    assert found.st_mtime == pytest.approx(1_500_000_000.123)
    near.setxattr(path, "user.a", b"value")
    assert far.getxattr(path, "user.a") == b"value" and far.listxattr(path) == ["user.a"]
    near.removexattr(path, "user.a")
    with pytest.raises(OSError):
        far.getxattr(path, "user.a")
    near.truncate(path, 2)
    assert far.read_bytes(path) == b"12" and far.stat(path).generation > found.generation
    assert far.stat(path) == far.stat(path)


def test_a_laminated_file_is_read_only_for_ever(near, far, place):
    with near.open_raw(f"{place}/f", "wb") as file:
        file.write(b"done")
        with pytest.raises(OSError):
            near.laminate(f"{place}/f")
    near.laminate(f"{place}/f")
    assert far.stat(f"{place}/f").laminated
    with pytest.raises(OSError):
        far.open(f"{place}/f", "ab")


def test_a_connection_is_pickled_by_its_store(service, near, place):
    near.write_bytes(f"{place}/f", b"x")
    again = pickle.loads(pickle.dumps(near))
    assert again == near and again.read_bytes(f"{place}/f") == b"x"
    assert repr(near) == f"forebay.connect({service.store!r}, member=0)"
    with near.open_raw(f"{place}/f") as file, pytest.raises(TypeError):
        pickle.dumps(file)


def test_the_service_tells_of_itself(service, near):
    status = near.status()
    assert status["store"] == service.store and len(status["members"]) == 2
    assert near.members == 2 and near.member == 0 and near.store == service.store
    space = near.space()
    assert 0 < space.free <= space.total


def test_the_variable_of_a_run_names_the_service(service, near, monkeypatch, place):
    near.write_bytes(f"{place}/f", b"run")
    monkeypatch.setenv("FOREBAY_SOCKET", f"{service.store}/link-1")
    with_variable = forebay.connect()
    assert with_variable.read_bytes(f"{place}/f") == b"run" and with_variable.member == 1
    assert with_variable.store == service.store
    monkeypatch.delenv("FOREBAY_SOCKET")
    with pytest.raises(FileNotFoundError):
        forebay.connect()


def test_trees_are_staged_in_and_out(near, far, place, tmp_path):
    source = tmp_path / "tree"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a").write_bytes(b"a" * 5000)
    (source / "b").write_bytes(b"b")
    done = near.stage_in(source, target=place, verify=True)
    assert (done.files, done.bytes) == (2, 5001)
    assert far.read_bytes(f"{place}/tree/sub/a") == b"a" * 5000
    near.stage_out(f"{place}/tree/sub", target=tmp_path)
    assert (tmp_path / "sub" / "a").read_bytes() == b"a" * 5000
    with pytest.raises(OSError):
        near.stage_in(tmp_path / "none", target=place)


def test_a_team_opens_and_closes_together(service, place):
    import threading

    outcomes = {}

    def member(number):
        connection = service.connect(number)
        with connection.team(77) as team:
            file = team.open(f"{place}/team", "w+b")
            file.pwrite(bytes([number]) * 10, number * 10)
            closed = team.close_file(file)
            outcomes[number] = (closed.st_size, team.stat(f"{place}/team").st_size, file.closed)

    threads = [threading.Thread(target=member, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == {0: (20, 20, True), 1: (20, 20, True)}
    assert service.connect(0).read_bytes(f"{place}/team") == b"\0" * 10 + b"\1" * 10
