// Libraries that one command needs and others do not: they are loaded when that command asks for
// them, and not by the system at every start. What calls their functions is written as ever;
// tools/lazy_stubs.sh makes a function of each such name that jumps to where a table says.
#ifndef TERN_BASE_LAZY_H
#define TERN_BASE_LAZY_H

#include <stdatomic.h>
#include "base/status.h"

typedef struct tern_lazy {
    const char *const *libraries; // [] names of files, as the linker has them; ends with NULL
    const char *const *names;     // [n] of functions
    void **at;                    // [n] where they are, once they are loaded
    size_t n;
    const char *what; // for people: "libcurl"
    atomic_int state; // lazy.c has it
} tern_lazy;

// Before the first call of a function of these libraries; from any thread. Fails where one is not
// there, with its name and the system's reason.
tern_status tern_lazy_load(tern_lazy *l, tern_error *err);

// In a static program, and for processors that lazy.c has no stub of, the linker has the libraries.
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

// A function `name` that jumps to table[index], whatever its arguments are.
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
