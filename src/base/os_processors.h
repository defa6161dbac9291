// What Linux grants a process of its processors. tern_n_processors (os_thread.h) is what others
// call; this is apart so that tests can show it systems that they make up.
#ifndef TERN_BASE_OS_PROCESSORS_H
#define TERN_BASE_OS_PROCESSORS_H

// n, or fewer where a control group of this process, or one that it is in, has a quota of processor
// time: the processors that the quota is worth, to the nearest whole number, at least 1. root
// stands before the names of all files that are read: "" for this system.
int tern_processors_granted(const char *root, int n);

#endif
