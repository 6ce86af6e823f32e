/* Preloaded into the operator's process. It shifts the wall clock by an offset, and makes one host name resolvable or not. The
 * test sets both as two numbers in a file that both processes have mapped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *state;

__attribute__((constructor)) static void enter(void) {
    const char *path = getenv("ILLUSION_STATE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) state = memory;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *moment) {
    int result = (int)syscall(SYS_clock_gettime, id, moment);
    if (result == 0 && state && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) moment->tv_sec += state[0];
    return result;
}

int gettimeofday(struct timeval *restrict moment, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    moment->tv_sec = now.tv_sec;
    moment->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *moment) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (moment) *moment = now.tv_sec;
    return now.tv_sec;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = node ? strlen(node) : 0;
    if (state && length > 5 && strcmp(node + length - 5, ".test") == 0) {
        if (state[1]) return EAI_AGAIN;
        node = "127.0.0.1";
    }
    return real(node, service, hints, found);
}
