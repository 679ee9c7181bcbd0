"""Files behave as those of ``io``, and as those of the service."""

import errno
import io
import os
import random
import threading

import forebay
import pytest


def test_what_is_written_is_read_on_another_node(near, far, place):
    data = random.Random(1).randbytes(3_000_001)
    with near.open(f"{place}/f", "wb") as file:
        assert file.write(data) == len(data)
    with far.open(f"{place}/f", "rb") as file:
        assert file.read() == data
    assert far.read_bytes(f"{place}/f") == data


def test_the_same_node_sees_a_write_before_it_is_published(service, near, far, place):
    with near.open_raw(f"{place}/f", "wb") as file:
        file.write(b"early")
        assert far.stat(f"{place}/f").st_size == 0
        other = service.connect(0).open_raw(f"{place}/f")
        assert other.readall() == b"early"
        assert far.stat(f"{place}/f").st_size == 0
        file.commit()
        assert far.read_bytes(f"{place}/f") == b"early"
        other.close()


def test_the_raw_file_is_a_whole_raw_file(near, place):
    file = near.open_raw(f"{place}/f", "w+b")
    assert isinstance(file, io.RawIOBase)
    assert (file.readable(), file.writable(), file.seekable(), file.isatty()) == (True, True, True, False)
    assert file.write(b"0123456789") == 10
    assert file.seek(-3, os.SEEK_END) == 7
    buffer = bytearray(8)
    assert file.readinto(buffer) == 3 and buffer[:3] == b"789"
    assert file.seek(2) == 2 and file.read(3) == b"234" and file.tell() == 5
    assert file.seek(-4, os.SEEK_CUR) == 1 and file.readall() == b"123456789"
    assert file.read(5) == b"" and file.readinto(bytearray(4)) == 0
    assert file.truncate(4) == 4 and file.stat().st_size == 4
    file.seek(2)
    assert file.truncate() == 2
    assert file.pwrite(b"zz", 5) == 2 and file.pread(10, 0) == b"01\0\0\0zz"
    assert file.preadinto(memoryview(buffer)[:2], 5) == 2 and buffer[:2] == b"zz"
    assert file.readline() == b"\0\0\0zz" and list(file) == []
    file.writelines([b"a\n", b"b\n"])
    file.seek(7)
    assert file.readlines() == [b"a\n", b"b\n"]
    file.flush()
    file.close()
    file.close()
    assert file.closed
    for call in (file.read, file.readable, file.tell, lambda: file.readinto(buffer), lambda: file.write(b"")):
        with pytest.raises(ValueError):
            call()


def test_a_file_that_may_not_be_written_or_read_says_so(near, place):
    near.write_bytes(f"{place}/f", b"x")
    with near.open_raw(f"{place}/f") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"y")
    with near.open_raw(f"{place}/f", "ab") as file, pytest.raises(io.UnsupportedOperation):
        file.read(1)
    with near.open(f"{place}/f", "rb") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"y")
    with near.open_raw(f"{place}/f") as file, pytest.raises(OSError):
        file.truncate(0)


def test_modes_are_those_of_the_built_in_open(near, tmp_path):
    directory = f"/{os.path.basename(tmp_path)}-modes"
    near.mkdir(directory)

    def outcome(opened, path, mode):
        try:
            with opened(path, mode) as file:
                begin = file.tell()
                if "r" not in mode or "+" in mode:
                    file.write(b"new" if "b" in mode else "new")
        except (OSError, ValueError) as e:
            return type(e)
        return begin

    modes = [k + b + p for k in "rwax" for b in ("", "b") for p in ("", "+")] + ["", "rw", "bt", "r++", "q"]
    for there in (True, False):
        for mode in modes:
            here, fs = str(tmp_path / "f"), f"{directory}/f"
            for remove in (os.remove, near.remove):
                try:
                    remove(here if remove is os.remove else fs)
                except FileNotFoundError:
                    pass
            if there:
                with open(here, "wb") as file:
                    file.write(b"content")
                near.write_bytes(fs, b"content")
            expected = outcome(open, here, mode)
            assert outcome(near.open, fs, mode) == expected, (mode, there)
            assert near.exists(fs) == os.path.exists(here), (mode, there)
            if os.path.exists(here):
                with open(here, "rb") as file:
                    assert near.read_bytes(fs) == file.read(), (mode, there)


def test_text_and_buffers(near, far, place):
    with near.open(f"{place}/t", "w", encoding="utf-8", newline="\n") as file:
        assert file.mode == "w"
        file.write("eins\nzwei\näöü\n")
    with far.open(f"{place}/t", encoding="utf-8") as file:
        assert [line.rstrip("\n") for line in file] == ["eins", "zwei", "äöü"]
    with near.open(f"{place}/t", "r+b") as file:
        assert isinstance(file, io.BufferedRandom) and isinstance(file.raw, forebay.File)
        file.seek(5)
        file.write(b"ZWEI")
        file.seek(0)
        assert file.readline() == b"eins\n" and file.readline() == b"ZWEI\n"
    with near.open(f"{place}/t", "a", encoding="utf-8") as file:
        file.write("end\n")
    assert near.read_bytes(f"{place}/t").endswith("äöü\nend\n".encode())


def test_errors_are_those_of_the_system(near, place):
    with pytest.raises(FileNotFoundError) as found:
        near.open(f"{place}/none")
    assert found.value.errno == errno.ENOENT and found.value.filename == f"{place}/none"
    assert found.value.strerror == os.strerror(errno.ENOENT)
    near.write_bytes(f"{place}/f", b"")
    for error, call in [
        (FileExistsError, lambda: near.open(f"{place}/f", "xb")),
        (NotADirectoryError, lambda: near.listdir(f"{place}/f")),
        (IsADirectoryError, lambda: near.open(place, "wb")),
        (IsADirectoryError, lambda: near.remove(place)),
        (OSError, lambda: near.rmdir(place)),
        (FileNotFoundError, lambda: near.mkdir(f"{place}/a/b")),
        (TypeError, lambda: near.stat(7)),
    ]:
        with pytest.raises(error):
            call()
    with pytest.raises(ConnectionRefusedError):
        forebay.connect("/var/tmp")


def test_a_temporary_file_goes_with_its_handle(near, far, place):
    with near.open_raw(f"{place}/half", "xb", temporary=True) as file:
        file.write(b"half")
        assert far.exists(f"{place}/half")
    assert not far.exists(f"{place}/half")
    with near.open_raw(f"{place}/whole.tmp", "xb", temporary=True) as file:
        file.write(b"whole")
        near.rename(f"{place}/whole.tmp", f"{place}/whole")
    assert near.listdir(place) == ["whole"] and far.read_bytes(f"{place}/whole") == b"whole"
    with pytest.raises(OSError, match="Invalid argument"):
        near.open_raw(f"{place}/whole", "r+b", temporary=True)


def test_any_contiguous_memory_is_read_and_written(near, place):
    import array

    numbers = array.array("d", [0.5, -1.25, 3e300])
    with near.open_raw(f"{place}/f", "w+b") as file:
        assert file.write(numbers) == 24
        assert file.write(memoryview(b"")) == 0
        back = array.array("d", [0.0] * 3)
        file.seek(0)
        assert file.readinto(back) == 24 and back == numbers
        with pytest.raises(BufferError):
            file.write(memoryview(b"abcdef")[::2])
        with pytest.raises((BufferError, TypeError)):
            file.readinto(b"constant")
        with pytest.raises(TypeError):
            file.write("text")


def test_holes_are_found_and_made(near, place):
    with near.open_raw(f"{place}/f", "w+b") as file:
        file.pwrite(b"a" * 8192, 0)
        file.pwrite(b"b" * 4096, 1 << 20)
        assert file.seek(0, os.SEEK_HOLE) == 8192
        assert file.seek(8192, os.SEEK_DATA) == 1 << 20
        file.punch(0, 4096)
        assert file.seek(0, os.SEEK_DATA) == 4096 and file.pread(1, 0) == b"\0"
        assert file.stat().stored < file.stat().st_size


def test_a_range_that_is_locked_is_not_locked_by_another(near, far, place):
    near.write_bytes(f"{place}/f", b"0" * 100)
    with near.open_raw(f"{place}/f", "r+b") as one, far.open_raw(f"{place}/f", "r+b") as two:
        assert one.lock(0, 10) and two.lock(10, 10)
        assert not two.lock(5, 10, wait=False)
        held = two.lock_held(5, 2)
        assert (held.start, held.end, held.exclusive) == (0, 10, True)
        one.pwrite(b"1", 0)
        one.unlock(0, 10)
        assert two.lock(0, 10, wait=False)
        assert two.pread(1, 0) == b"1"
        assert two.lock_held(50) is None
        assert one.flock(exclusive=False) and two.flock(exclusive=False)
        assert not one.flock(wait=False)
        two.funlock()
        assert one.flock(wait=False)


def test_threads_share_a_file_and_wait_without_the_interpreter(near, place):
    near.write_bytes(f"{place}/f", b"")
    with near.open_raw(f"{place}/f", "r+b") as file, near.open_raw(f"{place}/f", "r+b") as other:
        assert other.lock()
        waits = threading.Thread(target=lambda: (file.lock(), file.unlock()))
        waits.start()
        # This goes on only if the other thread waits without the interpreter's lock.
        threads = [threading.Thread(target=lambda n=n: file.pwrite(bytes([n]) * 1000, n * 1000)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert waits.is_alive()
        other.unlock()
        waits.join(30)
        assert not waits.is_alive()
        assert file.pread(8000, 0) == b"".join(bytes([n]) * 1000 for n in range(8))


def test_a_descriptor_is_the_same_file_through_the_mount(service, near, place):
    with near.open_raw(f"{place}/f", "w+b") as file:
        file.write(b"library ")
        descriptor = file.fileno()
        assert descriptor == file.fileno()
        assert os.fstat(descriptor).st_ino == file.stat().st_ino
        assert os.pread(descriptor, 7, 0) == b"library"
        os.pwrite(descriptor, b"mount", 8)
        os.fsync(descriptor)
        assert file.pread(20, 0) == b"library mount"
    with pytest.raises(OSError):
        os.fstat(descriptor)
    assert near.mount == service.mounts[0]
