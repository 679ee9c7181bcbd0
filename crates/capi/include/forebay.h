/* Files of a running Forebay service, for C, C++ and Fortran.
 *
 * Every call gives 0, or a count, or a negative error number: -ENOENT from <errno.h>. forebay_error_message() then
 * says what failed, and where. Paths start at the root of the file system. Any thread may use a
 * connection, and a file; a directory and a team are used by one thread at a time.
 *
 * What one process writes, others of its node see at once, through this library and through the mount. Other nodes
 * see it after forebay_fsync() or forebay_close(), in files that they open or lock after that.
 */
/* Made by `UPDATE_HEADER=1 cargo test -p forebay-capi --test it header::`; do not edit. */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/**
 * Most bytes of a name, with the zero at its end.
 */
#define FOREBAY_NAME_BYTES 256

/**
 * For forebay_open(): it may be read.
 */
#define FOREBAY_READ 1

/**
 * It may be written.
 */
#define FOREBAY_WRITE 2

/**
 * Each write goes to the end of the file, whatever other nodes do meanwhile. Implies FOREBAY_WRITE.
 */
#define FOREBAY_APPEND 4

/**
 * It is emptied; needs FOREBAY_WRITE.
 */
#define FOREBAY_TRUNCATE 8

/**
 * It is made if it does not exist; needs FOREBAY_WRITE.
 */
#define FOREBAY_CREATE 16

/**
 * It is made, and must not exist; needs FOREBAY_WRITE.
 */
#define FOREBAY_CREATE_NEW 32

/**
 * Its name is removed when the file is closed, or the process ends, however it ends, unless it was renamed before; needs
 * FOREBAY_CREATE_NEW. What a server's crash leaves stays.
 */
#define FOREBAY_TEMPORARY 64

/**
 * For forebay_lock(): with others who say the same.
 */
#define FOREBAY_LOCK_SHARED 1

/**
 * Alone.
 */
#define FOREBAY_LOCK_EXCLUSIVE 2

/**
 * A connection to the service of a node.
 */
struct forebay;

/**
 * A directory that is being listed.
 */
struct forebay_dir;

/**
 * One process's place in a team.
 */
struct forebay_team;

/**
 * An open file.
 */
struct forebay_file;

/**
 * Room of the whole service, in bytes.
 */
struct forebay_space {
  /**
   * In all.
   */
  uint64_t total;
  /**
   * What is left.
   */
  uint64_t free;
};

/**
 * One name in a directory.
 */
struct forebay_dirent {
  /**
   * The file's number.
   */
  uint64_t ino;
  /**
   * What it is, as the type bits of st_mode.
   */
  uint32_t mode;
  /**
   * The length of the name.
   */
  uint32_t length;
  /**
   * The name, with a zero at its end.
   */
  char name[FOREBAY_NAME_BYTES];
};

/**
 * The attributes of a file at one moment.
 */
struct forebay_stat {
  /**
   * The file's number, never used again for another file.
   */
  uint64_t ino;
  /**
   * Size in bytes.
   */
  uint64_t size;
  /**
   * Bytes that it takes; holes take none.
   */
  uint64_t stored;
  /**
   * Grows with every published change of the content: equal generations mean equal content.
   */
  uint64_t generation;
  /**
   * What it is, and permissions, as st_mode of <sys/stat.h>.
   */
  uint32_t mode;
  /**
   * Names that it has.
   */
  uint32_t nlink;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * 1 if it is read-only for ever.
   */
  uint32_t laminated;
  /**
   * Nanoseconds of the times below.
   */
  uint32_t atime_nsec;
  /**
   * As atime_nsec.
   */
  uint32_t mtime_nsec;
  /**
   * As atime_nsec.
   */
  uint32_t ctime_nsec;
  /**
   * Last access, as far as it is kept; seconds since 1970.
   */
  int64_t atime;
  /**
   * Last change of the content.
   */
  int64_t mtime;
  /**
   * Last change of content or attributes.
   */
  int64_t ctime;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Says what the last failed call of this thread failed at: the operation, the path, the reason. Empty before the
 * first. Valid until the next call of this thread that fails.
 */
const char *forebay_error_message(void);

/**
 * The version of this library, such as "0.1.0".
 */
const char *forebay_version(void);

/**
 * Connects to the service that runs on a store: the directory that `forebay mount` was given. One connection is
 * enough for a process; a child of fork() gets one of its own behind the same pointer.
 */
int forebay_connect(const char *store,
                    struct forebay **connection);

/**
 * The same for one of several members that one process runs: the nodes of `forebay mount --nodes`. forebay_connect() takes the
 * lowest.
 */
int forebay_connect_member(const char *store,
                           uint16_t member,
                           struct forebay **connection);

/**
 * Ends a connection. Files, directories and teams of it live on; the last of them to end closes it.
 */
int forebay_disconnect(struct forebay *connection);

/**
 * Looks how much room the whole service has.
 */
int forebay_statfs(const struct forebay *connection, struct forebay_space *space);

/**
 * Begins to list a directory.
 */
int forebay_opendir(const struct forebay *connection, const char *name, struct forebay_dir **dir);

/**
 * The next name, in order, without "." and "..". Gives 1, or 0 when there are no more.
 */
int forebay_readdir(struct forebay_dir *dir, struct forebay_dirent *entry);

/**
 * Ends a listing.
 */
int forebay_closedir(struct forebay_dir *dir);

/**
 * Opens a file. `flags` are some of FOREBAY_READ and its kin, `mode` the permissions of a file that is made; no umask
 * is applied.
 */
int forebay_open(const struct forebay *connection,
                 const char *name,
                 int flags,
                 uint32_t mode,
                 struct forebay_file **file);

/**
 * Publishes what was written, and closes, also if it fails: then what was written may be lost.
 */
int forebay_close(struct forebay_file *file);

/**
 * Reads up to `length` bytes at `offset`. Gives how many: fewer only at the end of the file.
 */
int64_t forebay_pread(const struct forebay_file *file,
                      void *buffer,
                      size_t length,
                      uint64_t offset);

/**
 * Writes all `length` bytes at `offset`, or fails; then a part may be written, if they are more than 1 MiB. A file
 * opened for append ignores the offset. Gives `length`.
 */
int64_t forebay_pwrite(const struct forebay_file *file,
                       const void *buffer,
                       size_t length,
                       uint64_t offset);

/**
 * Reads as forebay_pread() into `buffers` buffers, one after the other.
 */
int64_t forebay_preadv(const struct forebay_file *file,
                       const struct iovec *vector,
                       int buffers,
                       uint64_t offset);

/**
 * Writes as forebay_pwrite() what is in `buffers` buffers, one after the other. Gives how many bytes those are.
 */
int64_t forebay_pwritev(const struct forebay_file *file,
                        const struct iovec *vector,
                        int buffers,
                        uint64_t offset);

/**
 * Publishes what this node wrote to the file: other nodes see it when they open or lock it after this. It is on
 * disk. Reads that follow see what other nodes had published.
 */
int forebay_fsync(const struct forebay_file *file);

/**
 * Cuts or extends the file to `length` bytes.
 */
int forebay_ftruncate(const struct forebay_file *file, uint64_t length);

/**
 * The attributes of the file, with what this node wrote and did not publish yet.
 */
int forebay_fstat(const struct forebay_file *file, struct forebay_stat *stat);

/**
 * The first offset at or after `offset` that holds data; -ENXIO if there is none.
 */
int64_t forebay_seek_data(const struct forebay_file *file, uint64_t offset);

/**
 * The first offset at or after `offset` that is a hole, as what lies behind the end is.
 */
int64_t forebay_seek_hole(const struct forebay_file *file, uint64_t offset);

/**
 * Locks `length` bytes from `start` on, or all that follow if `length` is 0, and waits for it. The lock is of this file: another
 * one, of this process too, is another owner. It sees what was published before; its end publishes what this node
 * wrote.
 */
int forebay_lock(const struct forebay_file *file,
                 int mode,
                 uint64_t start,
                 uint64_t length);

/**
 * The same without waiting: -EAGAIN if another owner has a lock in the way.
 */
int forebay_trylock(const struct forebay_file *file, int mode, uint64_t start, uint64_t length);

/**
 * Publishes what this node wrote to the file, and gives up what this file holds of the range.
 */
int forebay_unlock(const struct forebay_file *file, uint64_t start, uint64_t length);

/**
 * Makes a directory. `mode`: its permissions; no umask is applied.
 */
int forebay_mkdir(const struct forebay *connection, const char *name, uint32_t mode);

/**
 * Removes an empty directory.
 */
int forebay_rmdir(const struct forebay *connection, const char *name);

/**
 * Removes a name that is not a directory. The content stays until its last close.
 */
int forebay_unlink(const struct forebay *connection, const char *name);

/**
 * Cuts or extends a file to `length` bytes.
 */
int forebay_truncate(const struct forebay *connection, const char *name, uint64_t length);

/**
 * Sets permissions. Taking away the last write bit makes a file read-only until it gets one back.
 */
int forebay_chmod(const struct forebay *connection, const char *name, uint32_t mode);

/**
 * Makes a file read-only for ever, so that every node may cache all of it; -EBUSY while anyone may write it.
 */
int forebay_laminate(const struct forebay *connection,
                     const char *name);

/**
 * Gives a file or directory another name, and replaces what had it.
 */
int forebay_rename(const struct forebay *connection, const char *from, const char *to);

/**
 * Gives a file a second name.
 */
int forebay_link(const struct forebay *connection, const char *from, const char *to);

/**
 * Makes the symbolic link `to` that says `from`.
 */
int forebay_symlink(const struct forebay *connection, const char *from, const char *to);

/**
 * What a symbolic link says: up to `length` bytes of it, without a zero at the end. Gives how many it has in all.
 */
int64_t forebay_readlink(const struct forebay *connection,
                         const char *name,
                         char *buffer,
                         size_t length);

/**
 * The attributes of a file; follows symbolic links.
 */
int forebay_stat(const struct forebay *connection, const char *name, struct forebay_stat *stat);

/**
 * The attributes of a name: of a symbolic link, not of what it says.
 */
int forebay_lstat(const struct forebay *connection, const char *name, struct forebay_stat *stat);

/**
 * Joins team `number` of processes at all nodes of the service, `here` of them at this node. All of them make the same
 * calls in the same order; each call is one for the service, and ends when the last has made it.
 */
int forebay_team_join(const struct forebay *connection,
                      uint32_t number,
                      uint32_t here,
                      struct forebay_team **team);

/**
 * Leaves a team.
 */
int forebay_team_leave(struct forebay_team *team);

/**
 * Opens a file as forebay_open() does, all together. FOREBAY_CREATE and FOREBAY_CREATE_NEW must be the same for all;
 * FOREBAY_TEMPORARY is refused.
 */
int forebay_team_open(struct forebay_team *team,
                      const char *name,
                      int flags,
                      uint32_t mode,
                      struct forebay_file **file);

/**
 * The attributes of a file, asked for all together.
 */
int forebay_team_stat(struct forebay_team *team, const char *name, struct forebay_stat *stat);

/**
 * Publishes what each node wrote, and closes, all together, also if it fails. `stat`, if it is not null, gets the attributes
 * of the file as it is then.
 */
int forebay_team_close(struct forebay_team *team,
                       struct forebay_file *file,
                       struct forebay_stat *stat);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_H */
