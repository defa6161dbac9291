// Shared libraries loaded at run time.
#ifndef TERN_BASE_OS_LIBRARY_H
#define TERN_BASE_OS_LIBRARY_H

#include <stdbool.h>
#include "base/status.h"

#if defined(_WIN32)
#define TERN_LIBRARY_PREFIX ""
#define TERN_LIBRARY_SUFFIX ".dll"
#elif defined(__APPLE__)
#define TERN_LIBRARY_PREFIX "lib"
#define TERN_LIBRARY_SUFFIX ".dylib"
#else
#define TERN_LIBRARY_PREFIX "lib"
#define TERN_LIBRARY_SUFFIX ".so"
#endif

bool tern_can_load_libraries(void); // a program that is linked statically cannot
// name: a path, or a name to find by the system's rules. It stays loaded until the process ends.
// TERN_ERR_DEVICE: it does not exist, or cannot be used; the message is the system's.
tern_status tern_library_open(void **library, const char *path, tern_error *err);
// A function or a variable; NULL: it has no such name.
void *tern_library_symbol(void *library, const char *name);
// The path of the library or program that contains this function. The caller frees it; NULL:
// unknown, or out of memory.
char *tern_library_of(const void *function);

// Whether there may be a GPU. False only if the system would show one and does not: then no library
// need be loaded.
bool tern_gpu_may_be_here(void);

// The folder of the program's file; "": unknown. The caller frees it.
tern_status tern_program_folder(char **folder, tern_error *err);

#endif
