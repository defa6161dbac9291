// Files and folders beneath a folder, by descriptors: a name is looked up in an open folder and
// nowhere else, and no link is followed, whatever changes meanwhile. A name has no slashes.
#ifndef TERN_AGENT_BENEATH_H
#define TERN_AGENT_BENEATH_H

#include "base/os/os_file.h"

int beneath_root(const char *path); // -1: errno; ENOTDIR: no folder
// A file or a folder for reading, ".": the folder itself; -1: *why says why not.
int beneath_open(int folder, const char *name, const char **why);
// What a descriptor or a name is, a link itself; *n_bytes: of a file.
tern_path_kind beneath_kind(int fd, uint64_t *n_bytes);
tern_path_kind beneath_look(int folder, const char *name, uint64_t *n_bytes);
// The first n_most names or so, unsorted, without "." and "..". False: it cannot be listed.
bool beneath_names(int folder, size_t n_most, tern_names *names);

#endif
