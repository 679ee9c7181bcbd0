"""Checkpoints of ``torch.distributed.checkpoint``: all ranks write one shared file.

>>> import torch.distributed.checkpoint as dcp                                          # doctest: +SKIP
>>> from forebay.torch import StorageReader, StorageWriter                              # doctest: +SKIP
>>> dcp.save(state, storage_writer=StorageWriter("/local/nvme/store", "/ckpt/7"))       # doctest: +SKIP
>>> dcp.load(state, storage_reader=StorageReader("/local/nvme/store", "/ckpt/7"))       # doctest: +SKIP

A checkpoint is a directory with the stock layout: ``.metadata`` and a data file that it names, so torch's own reader reads it through a
mount, and :class:`StorageReader` reads what torch's own writer wrote there.

The data file is divided by the global plan::

    | region of rank 0      | region of rank 1 | ... | tail                         |
    | slot | slot | ...     | slot | ...       |     | objects of no known length   |

A region has a slot for each of its rank's tensors, of the tensor's bytes and room for what ``torch.save`` adds, so each rank knows its
offsets before anyone writes. What has no known length, or outgrows its slot, goes to the tail: a rank takes room there under a lock.

A save becomes the checkpoint by one rename, that of its ``.metadata``, once the bytes of every rank are on disk. Until then a
checkpoint that was there before stays as it was. The data file's name has number and time of the ``.metadata`` that it will replace: all ranks
know both, no checkpoint names it yet, also after a checkpoint was copied to another service, which gives numbers anew, and the next save
removes what a killed one left.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import io
import math
import os
import pickle
import sys
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint import StorageWriter as _TorchStorageWriter
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, FileSystemBase, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import forebay

__all__ = ["StorageReader", "StorageWriter"]

#: Slots begin at multiples of this.
ALIGNMENT = 4096

#: What ``torch.save`` adds to a tensor's bytes is less; what adds more goes to the tail.
OVERHEAD = 4096

#: Smaller objects are written and read in one piece.
SMALL_BYTES = 1 << 20

#: The buffer between torch's many small reads of a large object and the service.
READ_BUFFER_BYTES = 16 << 10

METADATA = ".metadata"


@dataclasses.dataclass(frozen=True)
class _Region:
    """Where in the data file a rank's slots lie; travels with its plan."""

    start: int
    length: int


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _slot_bytes(item: WriteItem) -> int:
    """The length of an item's slot; 0 for what has no known length."""
    if item.type == WriteItemType.BYTE_IO or item.tensor_data is None:
        return 0
    count = math.prod(item.tensor_data.chunk.sizes)
    return _aligned(count * item.tensor_data.properties.dtype.itemsize + OVERHEAD)


def _connection(store: Any) -> forebay.Connection:
    return store if isinstance(store, forebay.Connection) else forebay.connect(store)


def _path(checkpoint_id: str | os.PathLike[str]) -> str:
    return os.path.join("/", os.fspath(checkpoint_id).removeprefix("forebay://"))


class _SlotWriter(io.RawIOBase):
    """Writes an object into a slot, in order; short pieces are gathered.

    Of an object that outgrows the slot nothing more is written, and ``overflowed`` says so: torch would make another error of one that
    is raised within ``torch.save``.
    """

    def __init__(self, file: forebay.File, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self._end = start + length
        self._next = start
        self._short = bytearray()
        self.overflowed = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._next + len(self._short) - self._start

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self.overflowed = self.overflowed or self._next + len(self._short) + len(view) > self._end
        if self.overflowed:
            return len(view)
        if len(view) < SMALL_BYTES:
            self._short += view
            if len(self._short) >= SMALL_BYTES:
                self.flush()
        else:
            self.flush()
            self._next += self._file.pwrite(view, self._next)
        return len(view)

    def flush(self) -> None:
        if self._short:
            self._next += self._file.pwrite(self._short, self._next)
            self._short = bytearray()


class _Slice(io.RawIOBase):
    """The bytes of one object in a data file, to be read as a file of its own."""

    def __init__(self, file: forebay.File, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._length - self._at)]
        count = self._file.preadinto(view, self._start + self._at) if len(view) else 0
        self._at += count
        return count


class _Files(FileSystemBase):
    """The service as torch's own code opens files."""

    def __init__(self, connection: forebay.Connection) -> None:
        self.connection = connection

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        with self.connection.open(path, mode) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return os.path.join(path, suffix)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self.connection.rename(path, new_path)

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return _path(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        self.connection.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        text = os.fspath(checkpoint_id)
        return text.startswith("forebay://") or "://" not in text

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return self.connection.exists(path)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self.connection.remove(path)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [os.path.join(path, name) for name in self.connection.listdir(path)]


class StorageWriter(BlockingAsyncStager, _TorchStorageWriter):
    """Writes checkpoints into a service, all ranks into one file.

    Parameters:
        store: A store's directory, or a connection. Each rank connects to the service of its own node.
        path: The checkpoint's directory in the service; ``checkpoint_id`` of a save takes its place.
        sync_files: The bytes are on disk before the checkpoint is there.
        overwrite: A checkpoint that is there already is replaced; else a save fails.
        cache_staged_state_dict: As of torch's own writer, for ``async_save``.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | forebay.Connection,
        path: str | os.PathLike[str] = "/",
        *,
        sync_files: bool = True,
        overwrite: bool = True,
        cache_staged_state_dict: bool = False,
    ) -> None:
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)
        self.connection = _connection(store)
        self.path = _path(path)
        self.sync_files = sync_files
        self.overwrite = overwrite
        self.save_id = uuid.uuid4().hex
        self.rank: int | None = None
        self.use_collectives = True
        # Of every rank's plan as it was last given out: a planner that keeps plans sends only those that changed.
        self._regions: dict[int, _Region] = {}
        # The data file of the save under way, at the rank that made it. It is temporary: its name is removed when it is closed, or the rank
        # ends.
        self._data_file: forebay.File | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The open file is this process's.
        return {**self.__dict__, "_data_file": None}

    @property
    def checkpoint_id(self) -> str:
        """The directory of the checkpoint."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a save."""
        if checkpoint_id:
            self.path = _path(checkpoint_id)
        self.save_id = uuid.uuid4().hex
        self._discard_data_file()

    def _discard_data_file(self) -> None:
        file, self._data_file = self._data_file, None
        if file is not None:
            _remove_temporary_name(file)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        # Removes what an unfinished save left because its server was killed. Nothing of this one is there yet: with collectives no rank makes
        # a file before all have come to the plan, and without them each has names of its own.
        for name in (self._data_name(), self._data_name() + ".tmp", self._metadata_name() + ".tmp"):
            with suppress(FileNotFoundError, NotADirectoryError):
                self.connection.remove(os.path.join(self.path, name))

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _Files.validate_checkpoint_id(checkpoint_id)

    def _metadata_name(self) -> str:
        # Ranks that do not talk to each other have a checkpoint each.
        return METADATA if self.use_collectives or self.rank is None else f"__{self.rank}{METADATA}"

    def _data_name(self) -> str:
        """The data file of the save under way, which no checkpoint names; until it is finished, with the suffix ``.tmp``."""
        try:
            found = self.connection.lstat(os.path.join(self.path, self._metadata_name()))
            replaces = f"{found.st_ino}_{found.st_mtime_ns:x}"
        except (FileNotFoundError, NotADirectoryError):
            replaces = "0"
        return f"{self._data_prefix()}{replaces}.distcp"

    def _data_prefix(self) -> str:
        """What the names of such files begin with; those of torch's own writer never do."""
        return "__all_" if self.use_collectives or self.rank is None else f"__rank{self.rank}_"

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.overwrite and self.connection.exists(os.path.join(self.path, self._metadata_name())):
            raise FileExistsError(f"there is a checkpoint in {self.path}, and overwrite is False")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        needed = {
            rank: sum(map(_slot_bytes, plan.items)) for rank, plan in enumerate(plans) if getattr(plan, "usable", True)
        }
        if len(needed) == len(plans):
            self._regions = {}
        end = max((r.start + r.length for r in self._regions.values()), default=0)
        for rank, length in needed.items():
            if rank not in self._regions or self._regions[rank].length < length:
                self._regions[rank] = _Region(end, length)
                end += length
        self.connection.makedirs(self.path, exist_ok=True)
        self._discard_data_file()
        data = os.path.join(self.path, self._data_name())
        if self.connection.exists(data):
            # Whatever has this name, it is not this save's to write over.
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), data)
        self._data_file = self.connection.open_raw(data + ".tmp", "xb", temporary=True)
        # What lies behind is the tail.
        self._data_file.truncate(end)
        return [
            dataclasses.replace(plan, storage_data=self._regions[rank]) if rank in needed else plan
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name = self._data_name()
        results = []
        rest: list[tuple[WriteItem, Any]] = []
        with self.connection.open_raw(os.path.join(self.path, name + ".tmp"), "r+b") as file:
            start = plan.storage_data.start if plan.storage_data is not None else 0
            for item in plan.items:
                length = _slot_bytes(item)
                data = planner.resolve_data(item)
                if isinstance(data, torch.Tensor):
                    data = _on_cpu(data)
                if length == 0:
                    rest.append((item, _serialized(data)))
                    continue
                written = _write_slot(file, start, length, data)
                if written is None:
                    rest.append((item, _serialized(data)))
                else:
                    results.append(_result(item, name, start, written))
                start += length
            results.extend(self._write_tail(file, name, rest))
            if self.sync_files:
                file.commit()
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def _write_tail(self, file: forebay.File, name: str, rest: list[tuple[WriteItem, Any]]) -> Iterable[WriteResult]:
        total = sum(_aligned(len(data)) for _, data in rest)
        if total == 0:
            return
        file.lock(0, 1)
        try:
            start = _aligned(file.stat().st_size)
            file.truncate(start + total)
        finally:
            file.unlock(0, 1)
        for item, data in rest:
            file.pwrite(data, start)
            yield _result(item, name, start, len(data))
            start += _aligned(len(data))

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        data_name = self._data_name()
        stored = {result.index: result.storage_data for part in results for result in part}
        _check_apart(stored.values())
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = stored
        metadata.storage_meta = self.storage_meta()
        data = os.path.join(self.path, data_name)
        final = os.path.join(self.path, self._metadata_name())
        try:
            self._publish(pickle.dumps(metadata), data, final)
        finally:
            self._discard_data_file()
        # Nothing names the data of what was there before, but what ranks wrote that each have a checkpoint there.
        names = self.connection.listdir(self.path)
        lone_ranks = [name[2:].removesuffix(METADATA) for name in names if name.startswith("__") and name.endswith(METADATA)]
        kept = tuple(prefix + rank + "_" for rank in lone_ranks for prefix in ("__", "__rank"))
        for name in names:
            is_data = name.startswith("__") and name.endswith((".distcp", ".distcp.tmp")) and name != data_name
            is_replaced = not name.startswith(kept) if self.use_collectives else name.startswith(self._data_prefix())
            if is_data and is_replaced:
                # A server removes the unfinished file of a dead rank at any time.
                with suppress(FileNotFoundError):
                    self.connection.remove(os.path.join(self.path, name))

    def _publish(self, metadata: bytes, data: str, final: str) -> None:
        """Gives the written files their names, ``final`` last: with that the checkpoint is there."""
        made = self._data_file
        if made is None or self.connection.lstat(data + ".tmp").st_ino != made.stat().st_ino:
            raise RuntimeError(f"another save into {self.path} began before this one was finished")
        holder = self.connection.open_raw(final + ".tmp", "xb", temporary=True)
        try:
            # Closed before it gets its name: a close publishes.
            with self.connection.open_raw(final + ".tmp", "r+b") as file:
                file.write(metadata)
                if self.sync_files:
                    file.commit()
            # Unlike a rename, it replaces nothing.
            self.connection.link(data + ".tmp", data)
            self.connection.rename(final + ".tmp", final)
        finally:
            _remove_temporary_name(holder)


def _remove_temporary_name(file: forebay.File) -> None:
    """Closes a temporary file of which nothing else matters. Its server removes the name also if the close fails."""
    with suppress(OSError):
        file.close()


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    # A view of a larger tensor would be saved with all of it.
    return tensor.clone() if tensor.untyped_storage().size() != tensor.nbytes else tensor


def _serialized(data: Any) -> Any:
    if isinstance(data, io.BytesIO):
        return data.getbuffer()
    buffer = io.BytesIO()
    torch.save(data, buffer)
    return buffer.getbuffer()


def _write_slot(file: forebay.File, start: int, length: int, data: torch.Tensor) -> int | None:
    """Bytes that the object takes; none if the slot is too short for it."""
    writer = _SlotWriter(file, start, length)
    torch.save(data, writer)
    if writer.overflowed:
        return None
    writer.flush()
    return writer.tell()


def _result(item: WriteItem, name: str, offset: int, length: int) -> WriteResult:
    return WriteResult(index=item.index, size_in_bytes=length, storage_data=_StorageInfo(name, offset, length))


def _check_apart(stored: Iterable[_StorageInfo]) -> None:
    """No two objects may share bytes: ranks whose plans are of different saves would overwrite each other."""
    end, file = 0, ""
    for info in sorted(stored, key=lambda info: (info.relative_path, info.offset)):
        if info.relative_path == file and info.offset < end:
            raise RuntimeError(
                "the ranks' plans do not fit together; a planner that keeps plans needs the StorageWriter of its first save"
            )
        end, file = info.offset + info.length, info.relative_path


class StorageReader(FileSystemReader):
    """Reads checkpoints of a service: its own, and those that torch's own writer made through a mount.

    Parameters:
        store: A store's directory, or a connection. Each rank connects to the service of its own node.
        path: The checkpoint's directory in the service; ``checkpoint_id`` of a load takes its place.
    """

    def __init__(
        self, store: str | os.PathLike[str] | forebay.Connection, path: str | os.PathLike[str] = "/"
    ) -> None:
        super().__init__(_path(path))
        self.fs = _Files(_connection(store))
        self.path = _path(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _Files.validate_checkpoint_id(checkpoint_id)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[tuple[_StorageInfo, ReadItem]]] = {}
        for item in plan.items:
            info = self.storage_data[item.storage_index]
            by_file.setdefault(info.relative_path, []).append((info, item))
        for name, items in by_file.items():
            items.sort(key=lambda pair: pair[0].offset)
            with self.fs.connection.open_raw(os.path.join(self.path, name)) as file:
                for info, item in items:
                    self._read_item(file, info, item, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_item(self, file: forebay.File, info: _StorageInfo, item: ReadItem, planner: LoadPlanner) -> None:
        stream: Any
        if info.length <= SMALL_BYTES:
            stream = io.BytesIO(file.pread(info.length, info.offset))
        else:
            stream = io.BufferedReader(_Slice(file, info.offset, info.length), READ_BUFFER_BYTES)
        descriptors = getattr(info, "transform_descriptors", None)
        if descriptors:
            stream = self.transforms.transform_load_stream(item, descriptors, stream)
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(stream.read()))
            return
        if not stream.seekable():
            stream = io.BytesIO(stream.read())
        target = planner.resolve_tensor(item).detach()
        if descriptors or info.length <= SMALL_BYTES or not _read_in_place(file, info, item, stream, target):
            stream.seek(0)
            target.copy_(_requested_part(torch.load(stream, map_location="cpu", weights_only=True), item, target))
        planner.commit_tensor(item, target)


def _requested_part(tensor: torch.Tensor, item: ReadItem, target: torch.Tensor) -> torch.Tensor:
    """The part of a stored tensor that an item asks for."""
    for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        if tensor.size(dim) != length:
            tensor = tensor.narrow(dim, offset, length)
    if target.size() != tensor.size():
        raise ValueError(f"{item.storage_index} is {tuple(tensor.size())}, and {tuple(target.size())} is wanted")
    return tensor


def _read_in_place(file: forebay.File, info: _StorageInfo, item: ReadItem, stream: Any, target: torch.Tensor) -> bool:
    """Reads the requested part of a stored tensor, and no more, straight into its place, if the part is one piece of the file. ``False``:
    it is not, and nothing was done.

    torch compares no checksum of such a part; the service compares its own of every byte that it reads.
    """
    try:
        # Without a device nothing is read but what says where the bytes are.
        stored = torch.load(stream, map_location="meta", weights_only=True)
        if not _is_plain(stored) or _is_of_other_byte_order(stream):
            return False
        start = getattr(stored.untyped_storage(), "_checkpoint_offset", None)
    except Exception:
        # Whatever it is: the whole is read, and says so.
        return False
    part = _requested_part(stored, item, target)
    is_memory = _is_plain(target) and target.device.type == "cpu" and target.data_ptr() != 0
    if start is None or not is_memory or part.dtype != target.dtype:
        return False
    if not part.is_contiguous() or not target.is_contiguous():
        return False
    length = part.numel() * part.element_size()
    first = start + part.storage_offset() * part.element_size()
    if first + length > info.length:
        return False
    place = memoryview((ctypes.c_char * length).from_address(target.data_ptr())).cast("B")
    if file.preadinto(place, info.offset + first) != length:
        raise EOFError(f"{file.name} ends within {item.storage_index}")
    return True


def _is_plain(tensor: Any) -> bool:
    """Whether its numbers lie in memory as they are."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _is_of_other_byte_order(stream: Any) -> bool:
    stream.seek(0)
    archive = torch._C.PyTorchFileReader(stream)
    return bool(archive.has_record("byteorder") and archive.get_record("byteorder") != sys.byteorder.encode())
