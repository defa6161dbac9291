// How many processors Linux grants a process. Other code calls tern_n_processors (os_thread.h);
// this is separate so that tests can give it made-up systems.
#ifndef TERN_BASE_OS_PROCESSORS_H
#define TERN_BASE_OS_PROCESSORS_H

// n, or fewer if a control group of this process, or a parent of it, has a quota of processor time:
// the quota in processors, rounded to the nearest whole number, at least 1. root is put before the
// names of all files read: "" for this system.
int tern_processors_granted(const char *root, int n);

#endif
