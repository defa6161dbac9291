// What children have in common on all systems. See child.h.
#include "apps/agent/child.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

// ---- Ending ------------------------------------------------------------------------------------

static bool wait_for(child *c, double seconds) {
    for (double end = tern_seconds() + seconds; !child_has_ended(c); tern_sleep(0.01)) {
        tern_strbuf none = {0};
        size_t n;
        if (tern_seconds() > end) return false;
        child_read(c, CHILD_OUT, &none, 0, &n); // a full pipe would block it for ever
        child_read(c, CHILD_ERRORS, &none, 0, &n);
    }
    return true;
}

void child_stop(child *c, double seconds) {
    child_close(c, CHILD_IN);
    if (c->process && !wait_for(c, seconds) && child_ask_to_end(c)) wait_for(c, seconds);
    child_kill(c);
}

void child_keep(tern_strbuf *to, size_t n_most, const char *bytes, size_t n) {
    size_t room = n_most > to->len ? n_most - to->len : 0;
    if (room) tern_strbuf_append(to, bytes, n < room ? n : room);
}

// ---- Environment -------------------------------------------------------------------------------

void child_env_set(child_env *e, tern_str name, tern_str value) {
    char *text = tern_alloc(TERN_MEM_MISC, name.len + value.len + 2);
    if (!text || tern_array_reserve(TERN_MEM_MISC, &e->list, &e->capacity, e->n, 2) != 0) {
        tern_free(text);
        e->failed = true;
        return;
    }
    memcpy(text, name.ptr, name.len);
    text[name.len] = '=';
    if (value.len) memcpy(text + name.len + 1, value.ptr, value.len);
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->list[i], text, name.len + 1)) {
            tern_free(e->list[i]);
            e->list[i] = text;
            return;
        }
    e->list[e->n++] = text;
    e->list[e->n] = NULL;
}

void child_env_pass(child_env *e, tern_str name) {
    char *terminated = tern_strndup(TERN_MEM_MISC, name.ptr, name.len);
    const char *value = terminated ? getenv(terminated) : NULL;
    e->failed |= !terminated;
    if (value) child_env_set(e, name, (tern_str){value, strlen(value)});
    tern_free(terminated);
}

void child_env_add_usual(child_env *e) {
#if defined(_WIN32)
    static const char *const names[] = {
        "PATH",         "PATHEXT",     "SystemRoot",        "SystemDrive", "ComSpec",
        "TEMP",         "TMP",         "USERPROFILE",       "USERNAME",    "APPDATA",
        "LOCALAPPDATA", "ProgramData", "ProgramFiles",      "HOMEDRIVE",   "HOMEPATH",
        "OS",           "TZ",          "ProgramFiles(x86)", "windir",      "NUMBER_OF_PROCESSORS"};
#else
    static const char *const names[] = {"PATH", "HOME",   "USER",     "LOGNAME", "SHELL",
                                        "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR",  "TZ"};
#endif
    if (tern_array_reserve(TERN_MEM_MISC, &e->list, &e->capacity, 0, 1) != 0) e->failed = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        child_env_pass(e, (tern_str){names[i], strlen(names[i])});
}

void child_env_free(child_env *e) {
    for (size_t i = 0; i < e->n; i++) tern_free(e->list[i]);
    tern_free(e->list);
    *e = (child_env){0};
}
