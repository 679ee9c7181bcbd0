"""Files of a running Forebay service, without its mount.

``forebay.connect(store)`` connects to the service that runs on a store. Files behave as those of ``open``; what one process of a node
writes, others of that node see at once, through this package and through the mount. Other nodes see it after ``commit`` or ``close``.

>>> import forebay
>>> fs = forebay.connect("/local/nvme/store")           # doctest: +SKIP
>>> with fs.open("/results/a.txt", "w") as f:           # doctest: +SKIP
...     f.write("42")

``forebay.fsspec`` is the fsspec protocol ``forebay://``, ``forebay.torch`` reads and writes checkpoints of
``torch.distributed.checkpoint``. Errors are ``OSError`` with the number of the system call of the same name.
"""

from forebay._connection import Connection, DirEntry, Space, connect
from forebay._file import File, LockHeld
from forebay._native import Stat
from forebay._stage import StageError, StageResult
from forebay._team import Team

__all__ = [
    "Connection",
    "DirEntry",
    "File",
    "LockHeld",
    "Space",
    "StageError",
    "StageResult",
    "Stat",
    "Team",
    "connect",
]
