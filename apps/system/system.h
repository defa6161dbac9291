// What a program for people needs of the system: a terminal, interrupts, the user's folders. What
// the library needs of it is in base/os.
#ifndef TERN_SYSTEM_H
#define TERN_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// At the start of main: standard streams carry bytes as they are, a terminal shows UTF-8 and obeys
// escape sequences, and a write over the limit of a file's size fails, as on a full disk.
void system_begin(void);
// Writing to a pipe whose reader has gone then fails, and does not end the process.
void system_pipes_may_break(void);

// ---- Terminal ----------------------------------------------------------------------------------

int terminal_columns(int fd);     // 0: not a terminal, or its width is not known
bool terminal_has_styles(int fd); // whether it obeys escape sequences
// Standard input, if it is a terminal. Waits until it has input, or for `seconds`; an interrupt may
// end the wait.
bool terminal_wait(double seconds);
bool terminal_forget(void); // drops typed input; returns whether there was any
#if defined(_WIN32)
// A line that the console of standard input edits, as UTF-8 with what ends it, in pieces. False:
// the end of input, Ctrl-C, or `take` said so.
bool terminal_line(bool (*take)(void *user, const char *bytes, size_t n), void *user);
#endif

// ---- Interrupts --------------------------------------------------------------------------------

// Ctrl-C, and requests to end. Called in a signal handler or on another thread: it may set atomic
// values, request a tern_cancel, and write to a descriptor. Returns whether it wants the next
// interrupt, too; else that one ends the process at once.
typedef bool (*interrupt_fn)(void);
// Sets what interrupts call, and returns what they called before; NULL: they end the process.
// Waiting calls of the system then return with EINTR. also_ignored: also Ctrl-C and SIGTERM that
// this process was started to ignore, as a shell's jobs in the background are.
interrupt_fn system_on_interrupt(interrupt_fn fn, bool also_ignored);

// ---- The user ----------------------------------------------------------------------------------

typedef enum user_folder {
    USER_HOME,
    USER_DATA,  // XDG_DATA_HOME, ~/.local/share; on Windows %LOCALAPPDATA%
    USER_CACHE, // XDG_CACHE_HOME, ~/.cache; on Windows %LOCALAPPDATA%
} user_folder;
// A folder of the user as two strings to be joined, from the environment. False: there is none.
bool system_user_folder(user_folder which, const char *parts[2]);

uint64_t system_memory(void); // bytes; 0: not known

#endif
