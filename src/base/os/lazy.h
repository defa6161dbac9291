// Libraries that only some commands need: they are loaded when such a command requests them, and
// not by the system at every start. Code calls their functions as usual; tools/lazy_stubs.sh
// generates a stub for each name that jumps to the address in a table.
#ifndef TERN_BASE_LAZY_H
#define TERN_BASE_LAZY_H

#include <stdatomic.h>
#include "base/status.h"

typedef struct tern_lazy {
    const char *const *libraries; // [] file names, as the linker records them; ends with NULL
    const char *const *names;     // [n] of functions
    void **at;                    // [n] their addresses, once loaded
    size_t n;
    const char *what; // for people: "libcurl"
    atomic_int state; // used by lazy.c
} tern_lazy;

// Call this before the first call of a function of these libraries, from any thread. Fails if one
// is missing, with its name and the system's reason.
tern_status tern_lazy_load(tern_lazy *l, tern_error *err);

// In a static program, and for processors without a stub in lazy.c, the program is linked with
// them.
#if defined(TERN_LAZY)
#define TERN_LAZY_LOAD(name, err) (tern_lazy_load(&tern_lazy_##name, err))
#define TERN_LAZY_DECLARE(name)   extern tern_lazy tern_lazy_##name
#else
#define TERN_LAZY_LOAD(name, err) ((void)(err), TERN_OK)
#define TERN_LAZY_DECLARE(name)   extern int tern_lazy_none
#endif
TERN_LAZY_DECLARE(curl);
TERN_LAZY_DECLARE(edit);
TERN_LAZY_DECLARE(images);
TERN_LAZY_DECLARE(sounds);
TERN_LAZY_DECLARE(serve);

// A function `name` that jumps to table[index], with any arguments.
#if defined(__x86_64__)
#define TERN_LAZY_STUB(name, table, index)                                                         \
    __asm__(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name                \
            ", @function\n" #name ":\n endbr64\n jmp *" #table "+8*" #index "(%rip)\n.size " #name \
            ", .-" #name "\n.popsection")
#elif defined(__aarch64__)
#define TERN_LAZY_STUB(name, table, index)                                                         \
    __asm__(".pushsection .text\n.balign 4\n.globl " #name "\n.hidden " #name "\n.type " #name     \
            ", %function\n" #name ":\n hint 34\n adrp x16, " #table "+8*" #index                   \
            "\n ldr x16, [x16, :lo12:" #table "+8*" #index "]\n br x16\n.size " #name ", .-" #name \
            "\n.popsection")
#endif

#endif
