// See system.h: POSIX systems.
#if !defined(_WIN32) && !defined(__wasi__)
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "apps/system/system.h"

void system_begin(void) { signal(SIGXFSZ, SIG_IGN); }
void system_pipes_may_break(void) { signal(SIGPIPE, SIG_IGN); }

// ---- Terminal ----------------------------------------------------------------------------------

int terminal_columns(int fd) {
    struct winsize size;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool terminal_has_styles(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

bool terminal_wait(double seconds) {
    struct pollfd typed = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&typed, 1, (int)(seconds * 1e3)) > 0;
}

bool terminal_forget(void) {
    const bool any = terminal_wait(0);
    tcflush(STDIN_FILENO, TCIFLUSH);
    return any;
}

// ---- Interrupts --------------------------------------------------------------------------------

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };
static interrupt_fn on_interrupt;
static volatile sig_atomic_t is_watched[N_NUMBERS];

static void on_signal(int number) {
    (void)number;
    if (on_interrupt && on_interrupt()) return;
    for (int i = 0; i < N_NUMBERS; i++)
        if (is_watched[i]) signal(numbers[i], SIG_DFL);
}

interrupt_fn system_on_interrupt(interrupt_fn fn, bool also_ignored) {
    // No SA_RESTART: opening a pipe without a reader must return.
    const struct sigaction action = {.sa_handler = fn ? on_signal : SIG_DFL};
    struct sigaction old;
    const interrupt_fn before = on_interrupt;
    on_interrupt = fn;
    for (int i = 0; i < N_NUMBERS; i++) {
        const bool stays_ignored = !fn || !also_ignored || numbers[i] == SIGHUP; // nohup's
        if (sigaction(numbers[i], NULL, &old) != 0) continue;
        if (old.sa_handler == SIG_IGN && stays_ignored) continue;
        is_watched[i] = fn != NULL;
        sigaction(numbers[i], &action, NULL);
    }
    return before;
}

// ---- The user ----------------------------------------------------------------------------------

// As the XDG base directory specification demands, relative paths are ignored.
static bool find(const char *variable, const char *below, const char *parts[2]) {
    const char *value = variable ? getenv(variable) : NULL;
    parts[0] = value;
    parts[1] = below;
    return value && value[0] == '/';
}

bool system_user_folder(user_folder which, const char *parts[2]) {
    static const char *const variables[] = {NULL, "XDG_DATA_HOME", "XDG_CACHE_HOME"};
    static const char *const at_home[] = {"", "/.local/share", "/.cache"};
    return find(variables[which], "", parts) || find("HOME", at_home[which], parts);
}

uint64_t system_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

#endif
