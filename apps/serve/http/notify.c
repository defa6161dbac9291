#include "apps/serve/http/notify.h"

#if !defined(_WIN32)
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "apps/serve/http/serve_log.h"

// A path, or an abstract name, which begins with '@' instead of the address's 0. Returns the
// address's length; 0: invalid.
static socklen_t read_address(const char *name, struct sockaddr_un *out) {
    size_t n = strlen(name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if ((*name != '/' && *name != '@') || n >= sizeof out->sun_path) {
        errno = EINVAL;
        return 0;
    }
    memcpy(out->sun_path, name, n);
    if (*name == '@') out->sun_path[0] = 0;
    // A path's length includes its terminating 0; in an abstract name it would be a part of the
    // name.
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*name == '/'));
}

// If the manager does not read, the caller waits at most this long.
static bool send_message(const char *name, const char *text, size_t n) {
    const struct timeval most = {.tv_sec = 2};
    struct sockaddr_un address;
    socklen_t n_address = read_address(name, &address);
    int fd = n_address ? socket(AF_UNIX, SOCK_DGRAM, 0) : -1;
    if (fd < 0) return false;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    ssize_t sent = sendto(fd, text, n, MSG_NOSIGNAL, (struct sockaddr *)&address, n_address);
    int why = errno;
    close(fd);
    errno = why;
    return sent == (ssize_t)n;
}

void notify(const char *format, ...) {
    const char *name = getenv("NOTIFY_SOCKET");
    char text[512];
    va_list args;
    if (!name || !*name) return;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) return;
    if (!send_message(name, text, (size_t)n))
        log_line("notify", "error=\"%s: %s\"", name, strerror(errno));
}

double notify_watchdog_seconds(void) {
    const char *each = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
    char *end;
    if (!each || !getenv("NOTIFY_SOCKET")) return 0;
    if (process && strtoull(process, NULL, 10) != (unsigned long long)getpid()) return 0;
    unsigned long long n = strtoull(each, &end, 10);
    return *end || end == each ? 0 : (double)n * 1e-6;
}

#else // it has no such manager

void notify(const char *format, ...) { (void)format; }
double notify_watchdog_seconds(void) { return 0; }

#endif
