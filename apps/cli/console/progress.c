// Progress on a terminal, and Ctrl-C in a command that computes for long.
#include "cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "apps/system/system.h"

// ---- Stopping -----------------------------------------------------------------------------------

static volatile sig_atomic_t cancelled, on_terminal;
static tern_cancel stop;        // seen by the library between parts of a step
static const char *left_behind; // what a stopped command leaves

static bool on_interrupt(void) {
    static const char said[] = "\r\033[Kstopping (once more: at once)\n";
    // Printed at once, however long the computation takes to end.
    if (!cancelled && on_terminal && write(STDERR_FILENO, said, sizeof said - 1) < 0)
        on_terminal = 0;
    cancelled = 1;
    tern_cancel_request(&stop);
    return false;
}

void cancel_on_signals(const char *left) {
    left_behind = left;
    if (left) tern_cancel_watch(&stop); // other commands have something to finish
    on_terminal = isatty(STDERR_FILENO);
    system_on_interrupt(on_interrupt, false);
}

bool was_cancelled(void) { return cancelled != 0; }

int exit_status(tern_status status, const tern_error *err) {
    if (status == TERN_OK || ferror(stdout)) return EXIT_OK;
    if (status != TERN_ERR_CANCELLED || !cancelled) return fail("%s", err->message);
    return fail("stopped%s%s", left_behind ? "; " : "", left_behind ? left_behind : "");
}

// ---- Progress -----------------------------------------------------------------------------------

#define BAR_WIDTH  32
#define BESIDE_BAR 28 // blanks, brackets, the percentage and the time left

static const char *duration_text(double seconds, char out[32]) {
    const int s = seconds < 360000 ? (int)(seconds + 0.5) : 360000;
    if (s < 100)
        snprintf(out, 32, "%d s", s);
    else if (s < 6000)
        snprintf(out, 32, "%d min", (s + 30) / 60);
    else
        snprintf(out, 32, "%d h %02d min", s / 3600, s % 3600 / 60);
    return out;
}

const char *time_left(progress_clock *c, double fraction, char out[48]) {
    const double now = seconds_now(), done = fraction - c->first;
    char time[32];
    out[0] = 0;
    if (!c->began || fraction < c->last) // another phase, or the same one again
        *c = (progress_clock){.began = now, .first = fraction};
    c->last = fraction;
    if (now - c->began < 2 || done <= 0 || fraction >= 1) return out; // it would be a guess
    snprintf(out, 48, ", %s left", duration_text((now - c->began) * (1 - fraction) / done, time));
    return out;
}

bool show_progress(void *user, const char *phase, double fraction) {
    static progress_clock clock;
    static char shown[32]; // the phase
    static double drawn;
    char bar[BAR_WIDTH + 1], left[48];
    (void)user;
    if (cancelled || !isatty(STDERR_FILENO)) return !cancelled;
    const double now = seconds_now();
    const bool is_new = strncmp(shown, phase, sizeof shown - 1) != 0;
    if (is_new) clock = (progress_clock){0};
    time_left(&clock, fraction, left);
    if (!is_new && fraction < 1 && now - drawn < 0.1) return true;
    drawn = now;
    snprintf(shown, sizeof shown, "%s", phase);
    int width = BAR_WIDTH, beside = (int)strlen(phase) + BESIDE_BAR;
    const int columns = terminal_columns(STDERR_FILENO);
    if (columns && columns < width + beside) width = columns > beside ? columns - beside : 0;
    for (int i = 0; i < width; i++) bar[i] = i < (int)(fraction * width) ? '#' : '.';
    bar[width] = 0;
    if (fraction >= 1)
        fprintf(stderr, "\r\033[K"); // done: clear the line
    else
        fprintf(stderr, "\r\033[K%s [%s] %3d%%%s", phase, bar, (int)(fraction * 100), left);
    fflush(stderr);
    return true;
}

void end_progress(void) {
    if (isatty(STDERR_FILENO) && !cancelled) fprintf(stderr, "\r\033[K");
}
