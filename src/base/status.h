// Error handling, used by every folder.
//
// A function that can fail returns tern_status and takes a tern_error * last (may be NULL).
// The first place that detects the fault writes the whole sentence: the fault, the place, and the
// expectation; callers only forward it. Nothing below the command line prints or exits.
#ifndef TERN_BASE_STATUS_H
#define TERN_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include "tern.h"

// Fills err (if not NULL) and returns status, so that `return tern_fail(...)` reads naturally.
// Messages longer than the buffer lose their middle; control characters from files are replaced.
tern_status tern_fail(tern_error *err, tern_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Prefixes an existing message with "context: "; used to add the file's name.
tern_status tern_fail_prefix(tern_error *err, tern_status status, const char *context);

// Out of memory, with the size that was requested.
tern_status tern_fail_memory(tern_error *err, size_t bytes);

// For the beginning of a public function that can fail: clears an earlier error.
static inline void tern_clear(tern_error *err) {
    if (err) err->status = TERN_OK, err->message[0] = 0;
}

// For the beginning of a public function: checks arguments that callers must give.
#define TERN_NEED(pointer)                                                                         \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s is NULL", __func__, #pointer);        \
    } while (0)
#define TERN_NEED_ARRAY(array, n)                                                                  \
    do {                                                                                           \
        if (!(array) && (n) > 0)                                                                   \
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s is NULL, but %s is not 0", __func__,  \
                             #array, #n);                                                          \
    } while (0)
// The same for each pointer of an array.
#define TERN_NEED_EACH(array, n)                                                                   \
    do {                                                                                           \
        TERN_NEED_ARRAY(array, n);                                                                 \
        for (size_t need_i_ = 0; need_i_ < (n); need_i_++)                                         \
            if (!(array)[need_i_])                                                                 \
                return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s[%zu] is NULL", __func__, #array,  \
                                 need_i_);                                                         \
    } while (0)

// Checks a value of an enum whose members are 0 to last.
#define TERN_NEED_ENUM(value, last)                                                                \
    do {                                                                                           \
        if ((unsigned)(value) > (unsigned)(last))                                                  \
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s is %d: expected 0 to %d", __func__,   \
                             #value, (int)(value), (int)(last));                                   \
    } while (0)

#define TERN_TRY(expression)                                                                       \
    do {                                                                                           \
        tern_status try_status_ = (expression);                                                    \
        if (try_status_ != TERN_OK) return try_status_;                                            \
    } while (0)

// As TERN_TRY, for functions that clean up at a label `fail:` and return `status` there.
#define TERN_TRY_GOTO(expression)                                                                  \
    do {                                                                                           \
        status = (expression);                                                                     \
        if (status != TERN_OK) goto fail;                                                          \
    } while (0)

#endif
