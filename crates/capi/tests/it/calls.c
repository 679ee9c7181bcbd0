/* Every function of the interface, with what it must give. The store is the argument. */
#include <forebay.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(expression, expected)                                                                   \
    do {                                                                                           \
        long long found_ = (long long)(expression), wanted_ = (long long)(expected);               \
        if (found_ != wanted_) {                                                                   \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #expression, found_,  \
                    wanted_, forebay_error_message());                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void files(struct forebay *near, struct forebay *far)
{
    struct forebay_file *file, *other;
    struct forebay_stat found;
    char bytes[64] = {0};
    int create = FOREBAY_READ | FOREBAY_WRITE | FOREBAY_CREATE_NEW;
    IS(forebay_open(near, "/c/f", create, 0600, &file), 0);
    IS(forebay_open(near, "/c/f", create, 0600, &other), -EEXIST);
    IS(other == NULL, 1);
    IS(forebay_pwrite(file, "0123456789", 10, 0), 10);
    IS(forebay_pread(file, bytes, sizeof bytes, 4), 6);
    IS(memcmp(bytes, "456789", 6), 0);
    IS(forebay_pread(file, bytes, sizeof bytes, 100), 0);

    struct iovec out[3] = {{"abc", 3}, {NULL, 0}, {"de", 2}};
    IS(forebay_pwritev(file, out, 3, 10), 5);
    char first[12], second[12];
    struct iovec in[2] = {{first, sizeof first}, {second, sizeof second}};
    IS(forebay_preadv(file, in, 2, 0), 15);
    IS(memcmp(first, "0123456789ab", 12) | memcmp(second, "cde", 3), 0);

    /* Elsewhere once it is published. */
    IS(forebay_stat(far, "/c/f", &found), 0);
    IS(found.size, 0);
    IS(forebay_fsync(file), 0);
    IS(forebay_stat(far, "/c/f", &found), 0);
    IS(found.size, 15);
    IS(found.mode, S_IFREG | 0600);
    IS(found.laminated, 0);
    IS(forebay_ftruncate(file, 1 << 20), 0);
    IS(forebay_fstat(file, &found), 0);
    IS(found.size, 1 << 20);
    IS(forebay_seek_hole(file, 0), 15);
    IS(forebay_seek_data(file, 1 << 19), -ENXIO);

    /* Locks are of files, not of processes. */
    IS(forebay_open(far, "/c/f", FOREBAY_READ | FOREBAY_WRITE, 0, &other), 0);
    IS(forebay_lock(file, FOREBAY_LOCK_EXCLUSIVE, 0, 10), 0);
    IS(forebay_trylock(other, FOREBAY_LOCK_SHARED, 5, 0), -EAGAIN);
    IS(forebay_trylock(other, FOREBAY_LOCK_SHARED, 10, 0), 0);
    IS(forebay_unlock(file, 0, 10), 0);
    IS(forebay_lock(other, FOREBAY_LOCK_SHARED, 5, 0), 0);
    IS(forebay_lock(other, 7, 0, 0), -EINVAL);
    IS(forebay_close(other), 0);

    /* An append goes to the end, whoever writes. */
    IS(forebay_truncate(near, "/c/f", 3), 0);
    IS(forebay_close(file), 0);
    IS(forebay_open(near, "/c/f", FOREBAY_APPEND, 0, &file), 0);
    IS(forebay_pwrite(file, "end", 3, 0), 3);
    IS(forebay_pread(file, bytes, 1, 0), -EBADF);
    IS(forebay_close(file), 0);
    IS(forebay_open(far, "/c/f", FOREBAY_READ, 0, &file), 0);
    IS(forebay_pread(file, bytes, sizeof bytes, 0), 6);
    IS(memcmp(bytes, "012end", 6), 0);
    IS(forebay_pwrite(file, "x", 1, 0), -EBADF);
    IS(strstr(forebay_error_message(), "cannot write /c/f") != NULL, 1);
    IS(forebay_close(file), 0);
    IS(forebay_close(NULL), 0);
}

static void names(struct forebay *near, struct forebay *far)
{
    struct forebay_dir *dir;
    struct forebay_dirent entry;
    struct forebay_stat found;
    struct forebay_file *file;
    char target[8];
    IS(forebay_mkdir(near, "/c/d", 0750), 0);
    IS(forebay_mkdir(near, "/c/d", 0750), -EEXIST);
    IS(forebay_stat(far, "/c/d", &found), 0);
    IS(found.mode, S_IFDIR | 0750);
    IS(forebay_symlink(near, "somewhere", "/c/d/s"), 0);
    IS(forebay_readlink(far, "/c/d/s", target, sizeof target), 9);
    IS(memcmp(target, "somewher", 8), 0);
    IS(forebay_lstat(far, "/c/d/s", &found), 0);
    IS(found.mode & S_IFMT, S_IFLNK);
    IS(forebay_stat(far, "/c/d/s", &found), -ENOENT);
    IS(forebay_link(near, "/c/f", "/c/d/l"), 0);
    IS(forebay_rename(near, "/c/d/l", "/c/d/k"), 0);
    IS(forebay_opendir(far, "/c/d", &dir), 0);
    IS(forebay_readdir(dir, &entry), 1);
    IS(strcmp(entry.name, "k") | (entry.mode != S_IFREG) | (entry.length != 1), 0);
    IS(forebay_readdir(dir, &entry), 1);
    IS(strcmp(entry.name, "s") | (entry.mode != S_IFLNK), 0);
    IS(forebay_readdir(dir, &entry), 0);
    IS(forebay_closedir(dir), 0);
    IS(forebay_opendir(far, "/c/f", &dir), -ENOTDIR);
    IS(forebay_rmdir(near, "/c/d"), -ENOTEMPTY);
    IS(forebay_unlink(near, "/c/d"), -EISDIR);
    struct forebay_file *made, *refused;
    int temporary = FOREBAY_WRITE | FOREBAY_CREATE_NEW | FOREBAY_TEMPORARY;
    IS(forebay_open(near, "/c/d/made", temporary, 0600, &made), 0);
    IS(forebay_open(near, "/c/d/made", FOREBAY_READ | FOREBAY_TEMPORARY, 0, &refused), -EINVAL);
    IS(forebay_close(made), 0);
    IS(forebay_stat(far, "/c/d/made", &found), -ENOENT);
    IS(forebay_unlink(near, "/c/d/s"), 0);
    IS(forebay_unlink(near, "/c/d/k"), 0);
    IS(forebay_rmdir(near, "/c/d"), 0);
    IS(forebay_chmod(near, "/c/f", 0640), 0);
    IS(forebay_laminate(near, "/c/f"), 0);
    IS(forebay_stat(far, "/c/f", &found), 0);
    IS(found.laminated, 1);
    IS(forebay_open(near, "/c/f", FOREBAY_WRITE, 0, &file) < 0, 1);
    struct forebay_space space;
    IS(forebay_statfs(near, &space), 0);
    IS(space.total > 0 && space.free <= space.total, 1);
}

static void wrong(struct forebay *near)
{
    struct forebay *service;
    struct forebay_file *file;
    char byte;
    IS(forebay_connect("/nonexistent", &service), -ECONNREFUSED);
    IS(service == NULL, 1);
    IS(forebay_connect(NULL, &service), -EINVAL);
    IS(forebay_open(NULL, "/c/f", FOREBAY_READ, 0, &file), -EINVAL);
    IS(forebay_open(near, NULL, FOREBAY_READ, 0, &file), -EINVAL);
    IS(forebay_open(near, "/c/f", FOREBAY_READ, 0, NULL), -EINVAL);
    IS(forebay_open(near, "/c/f", 1 << 12, 0, &file), -EINVAL);
    IS(forebay_open(near, "/c/f", 0, 0, &file), -EINVAL);
    IS(forebay_open(near, "/c/none", FOREBAY_READ, 0, &file), -ENOENT);
    IS(forebay_pread(NULL, &byte, 1, 0), -EINVAL);
    IS(forebay_open(near, "/c/f", FOREBAY_READ, 0, &file), 0);
    IS(forebay_pread(file, NULL, 1, 0), -EINVAL);
    IS(forebay_pread(file, &byte, (size_t)-1, 0), -EINVAL);
    IS(forebay_pread(file, NULL, 0, 0), 0);
    IS(forebay_preadv(file, NULL, -1, 0), -EINVAL);
    IS(forebay_close(file), 0);
}

static void forked(struct forebay *near)
{
    struct forebay_file *file;
    IS(forebay_open(near, "/c/kept", FOREBAY_WRITE | FOREBAY_CREATE, 0644, &file), 0);
    pid_t child = fork();
    if (child == 0) {
        IS(forebay_pwrite(file, "from ", 5, 0), 5);
        IS(forebay_close(file), 0);
        IS(forebay_disconnect(near), 0);
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(forebay_pwrite(file, "C", 1, 5), 1);
    IS(forebay_close(file), 0);
}

static void teams(struct forebay *near, struct forebay *far)
{
    struct forebay_file *file;
    struct forebay_stat found;
    struct forebay_team *team;
    IS(forebay_team_join(near, 1, 0, &team) < 0, 1);
    IS(team == NULL, 1);
    IS(forebay_team_open(NULL, "/c/t", FOREBAY_READ, 0, NULL), -EINVAL);
    IS(forebay_team_stat(NULL, "/c/t", NULL), -EINVAL);
    IS(forebay_team_close(NULL, NULL, NULL), -EINVAL);
    /* The file is closed, and so published, also where there is no team. */
    IS(forebay_open(near, "/c/t", FOREBAY_WRITE | FOREBAY_CREATE, 0600, &file), 0);
    IS(forebay_pwrite(file, "team", 4, 0), 4);
    IS(forebay_team_close(NULL, file, NULL), -EINVAL);
    IS(forebay_stat(far, "/c/t", &found), 0);
    IS(found.size, 4);
    IS(forebay_team_leave(NULL), 0);
}

/* After the end of the thread's own memory, where the message of a failed call was. */
static struct forebay *last;

static void at_the_end(void)
{
    IS(forebay_unlink(last, "/c/missing"), -ENOENT);
    IS(strlen(forebay_error_message()), 0);
    IS(forebay_disconnect(last), 0);
    puts("all right");
    fflush(stdout);
}

int main(int count, char **words)
{
    struct forebay *near, *far;
    IS(count, 2);
    IS(strlen(forebay_version()) >= 5, 1);
    IS(strlen(forebay_error_message()), 0);
    IS(forebay_connect(words[1], &near), 0);
    IS(forebay_connect_member(words[1], 1, &far), 0);
    IS(forebay_mkdir(near, "/c", 0755), 0);
    files(near, far);
    names(near, far);
    wrong(near);
    forked(near);
    teams(near, far);
    IS(forebay_disconnect(far), 0);
    last = near;
    IS(atexit(at_the_end), 0);
    IS(forebay_unlink(last, "/c/missing"), -ENOENT);
    IS(strlen(forebay_error_message()) > 0, 1);
    return 0;
}
