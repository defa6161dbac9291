// Standard input together with wake-ups by other threads: of `tern mcp`, one in a process.
#ifndef TERN_SERVE_STDIO_IN_H
#define TERN_SERVE_STDIO_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool stdio_in_open(void); // false: errno
void stdio_in_close(void);
void stdio_in_wake(void); // any thread
// Waits for input, for a wake-up (*woken) or for so long. Returns how many bytes it has read; 0:
// none so far; -1: no more will come.
int64_t stdio_in_wait(double seconds, char *bytes, size_t n, bool *woken);

#endif
