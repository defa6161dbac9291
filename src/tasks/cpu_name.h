// What the processor is called.
#ifndef TERN_TASKS_CPU_NAME_H
#define TERN_TASKS_CPU_NAME_H

#include <stddef.h>

// From the text of Linux's /proc/cpuinfo: a name that stands there, or what the numbers of ARM's
// processors mean, each kind once; "unknown" where it says neither.
void tern_cpu_name(const char *cpuinfo, char *out, size_t size);

#endif
