#include "apps/serve/stdio_in.h"

#include <errno.h>

#if !defined(_WIN32)
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static int wake[2] = {-1, -1};

bool stdio_in_open(void) { return pipe2(wake, O_NONBLOCK | O_CLOEXEC) == 0; }

void stdio_in_close(void) {
    for (int i = 0; i < 2; i++) {
        if (wake[i] >= 0) close(wake[i]);
        wake[i] = -1;
    }
}

void stdio_in_wake(void) {
    // If the pipe is full, the loop has been woken already.
    while (write(wake[1], "", 1) < 0 && errno == EINTR) {
    }
}

int64_t stdio_in_wait(double seconds, char *bytes, size_t n, bool *woken) {
    char many[256];
    struct pollfd both[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = wake[0], .events = POLLIN}};
    *woken = false;
    if (poll(both, 2, (int)(seconds * 1000)) < 0) return errno == EINTR ? 0 : -1;
    while (both[1].revents && read(wake[0], many, sizeof many) > 0) *woken = true;
    if (!both[0].revents) return 0;
    ssize_t got = read(STDIN_FILENO, bytes, n);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    return got > 0 ? got : -1;
}

#else
#define WIN32_LEAN_AND_MEAN
#include <string.h>
#include <windows.h>

// A pipe or a console cannot be waited for together with an event: a thread reads it, which waits
// until its piece is taken.
static struct {
    HANDLE woken, is_there, is_taken; // events that reset themselves
    HANDLE thread;
    char bytes[65536];
    DWORD n, at; // 0 bytes: the end
} in;

static DWORD WINAPI read_input(void *unused) {
    HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
    (void)unused;
    do {
        DWORD got = 0;
        if (!ReadFile(input, in.bytes, sizeof in.bytes, &got, NULL)) got = 0;
        in.n = got;
        in.at = 0;
        SetEvent(in.is_there);
        WaitForSingleObject(in.is_taken, INFINITE);
    } while (in.n > 0);
    return 0;
}

bool stdio_in_open(void) {
    HANDLE *const events[] = {&in.woken, &in.is_there, &in.is_taken};
    errno = ENOMEM;
    for (int i = 0; i < 3; i++)
        if (!(*events[i] = CreateEventA(NULL, FALSE, FALSE, NULL))) return false;
    in.thread = CreateThread(NULL, 0, read_input, NULL, 0, NULL);
    return in.thread != NULL;
}

void stdio_in_close(void) {} // its thread may be reading until the process ends

void stdio_in_wake(void) { SetEvent(in.woken); }

int64_t stdio_in_wait(double seconds, char *bytes, size_t n, bool *woken) {
    HANDLE both[] = {in.woken, in.is_there};
    DWORD which = WaitForMultipleObjects(2, both, FALSE, (DWORD)(seconds * 1000));
    *woken = which == WAIT_OBJECT_0;
    if (which != WAIT_OBJECT_0 + 1) return which == WAIT_FAILED ? -1 : 0;
    if (in.n == 0) return -1;
    DWORD some = in.n - in.at < n ? in.n - in.at : (DWORD)n;
    memcpy(bytes, in.bytes + in.at, some);
    in.at += some;
    SetEvent(in.at == in.n ? in.is_taken : in.is_there);
    return some;
}

#endif
