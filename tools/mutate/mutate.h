// Mutated files of every kind, given to their readers: see mutate.c.
#ifndef TERN_TOOLS_MUTATE_H
#define TERN_TOOLS_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A kind of input that the program reads: a folder of files, and what to do with it.
typedef struct mutate_kind {
    const char *name;
    // Fills an empty folder; false: an error of the tool.
    bool (*make)(const char *folder);
    // Reads the folder with everything that reads such files. May refuse anything.
    void (*use)(const char *folder);
    // Which files are mutated: a part of their names; NULL: all.
    const char *only;
} mutate_kind;

extern const mutate_kind mutate_kinds[];
extern const size_t mutate_n_kinds;

#endif
