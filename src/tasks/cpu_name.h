// What the processor is called.
#ifndef TERN_TASKS_CPU_NAME_H
#define TERN_TASKS_CPU_NAME_H

#include <stddef.h>

// From the text of Linux's /proc/cpuinfo: the name in it, or the meaning of the numbers of ARM
// processors, each kind once; "unknown" if it has neither.
void tern_cpu_name(const char *cpuinfo, char *out, size_t size);

#endif
