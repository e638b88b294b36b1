/* A disk that fails on purpose, and a clock that goes back: loaded before libc with LD_PRELOAD.

   Every call that changes a file below the chosen folder is an event. At the chosen event the
   process is killed (a write is done by half first), or the call, and every one after it, fails as
   on a full or a read-only disk. Nothing happens until faulty_arm() is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NOTHING, KILL, FULL, READ_ONLY };

static char folder[PATH_MAX];
static int fault = NOTHING;
static long chosen = -1, back = 0;
static atomic_long events = 0, ticks = 0;

void faulty_arm(const char *where, int what, long when) {
    strncpy(folder, where, sizeof folder - 1);
    fault = what, chosen = when, events = 0;
}
long faulty_events(void) { return events; }
void faulty_clock(long seconds) { back = seconds; }

static int below(const char *path) {
    return folder[0] && strncmp(path, folder, strlen(folder)) == 0;
}
static int at_below(int at, const char *path) {
    char base[PATH_MAX], link[64];
    if (!folder[0] || path == NULL) return 0;
    if (path[0] == '/') return below(path);
    if (at == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    size_t used = strlen(base);
    if (used + 2 < sizeof base) {
        base[used] = '/';
        strncpy(base + used + 1, path, sizeof base - used - 2);
        base[sizeof base - 1] = 0;
    }
    return below(base);
}
static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}
/* 0: go on; 1: killed after half of it (writes); otherwise errno is set and the call fails. */
static int event(int frees_room) {
    long number = ++events;
    if (fault == NOTHING || number < chosen) return 0;
    if (fault == KILL) {
        if (number > chosen) return 0;
        return 1;
    }
    if (fault == FULL && frees_room) return 0;
    errno = fault == FULL ? ENOSPC : EROFS;
    return 2;
}
static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define CHANGES(test, frees, ...)                                                                  \
    if (test) { int what = event(frees); if (what == 1) die(); if (what == 2) return -1; }         \
    return real(__VA_ARGS__)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (fd_below(fd)) {
        int what = event(0);
        if (what == 1) { real(fd, data, size / 2); die(); }
        if (what == 2) return -1;
    }
    return real(fd, data, size);
}
#define POSITIONED(name, off)                                                                      \
    ssize_t name(int fd, const void *data, size_t size, off at) {                                  \
        REAL(name);                                                                                \
        if (fd_below(fd)) {                                                                        \
            int what = event(0);                                                                   \
            if (what == 1) { real(fd, data, size / 2, at); die(); }                                \
            if (what == 2) return -1;                                                              \
        }                                                                                          \
        return real(fd, data, size, at);                                                           \
    }
POSITIONED(pwrite, off_t)
POSITIONED(pwrite64, off64_t)
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    CHANGES(fd_below(fd), 0, fd, parts, count);
}
int fsync(int fd) { REAL(fsync); CHANGES(fd_below(fd), 0, fd); }
int fdatasync(int fd) { REAL(fdatasync); CHANGES(fd_below(fd), 0, fd); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); CHANGES(fd_below(fd), 1, fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); CHANGES(fd_below(fd), 1, fd, size); }
int rename(const char *a, const char *b) {
    REAL(rename);
    CHANGES(at_below(AT_FDCWD, b), 1, a, b);
}
int link(const char *a, const char *b) { REAL(link); CHANGES(at_below(AT_FDCWD, b), 0, a, b); }
int linkat(int d, const char *a, int e, const char *b, int flags) {
    REAL(linkat);
    CHANGES(at_below(e, b), 0, d, a, e, b, flags);
}
int unlink(const char *path) { REAL(unlink); CHANGES(at_below(AT_FDCWD, path), 1, path); }
int unlinkat(int d, const char *path, int flags) {
    REAL(unlinkat);
    CHANGES(at_below(d, path), 1, d, path, flags);
}
int rmdir(const char *path) { REAL(rmdir); CHANGES(at_below(AT_FDCWD, path), 1, path); }
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    CHANGES(at_below(AT_FDCWD, path), 0, path, mode);
}
int mkdirat(int d, const char *path, mode_t mode) {
    REAL(mkdirat);
    CHANGES(at_below(d, path), 0, d, path, mode);
}

static int changing(int flags) { return flags & (O_CREAT | O_TRUNC); }
#define OPENS(name)                                                                                \
    int name(const char *path, int flags, ...) {                                                   \
        REAL(name);                                                                                \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);     \
        CHANGES(changing(flags) && at_below(AT_FDCWD, path), 0, path, flags, mode);                \
    }
#define OPENS_AT(name)                                                                             \
    int name(int d, const char *path, int flags, ...) {                                            \
        REAL(name);                                                                                \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);     \
        CHANGES(changing(flags) && at_below(d, path), 0, d, path, flags, mode);                    \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(clock_gettime);
    int failed = real(which, now);
    if (!failed && back && which == CLOCK_REALTIME) now->tv_sec -= back * ++ticks;
    return failed;
}
