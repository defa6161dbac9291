// Processes of Windows. See child.h. A job holds the child and its descendants and ends them with
// itself; of this process's handles they inherit the three pipes' and no other.
//
// Pipes without waiting: what can be read is asked for first; what is written is a copy that the
// system takes in its own time, and the next bytes wait until it has.
#include "apps/agent/child.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"

#define PIPE_BYTES 65536

typedef struct writing {
    OVERLAPPED state;
    bool is_pending;
    bool closes; // once all is written
    char bytes[PIPE_BYTES];
} writing;

static HANDLE handle_of(const child *c, child_pipe which) {
    return (HANDLE)_get_osfhandle(c->pipes[which]);
}

static void close_handle(HANDLE *h) {
    if (*h && *h != INVALID_HANDLE_VALUE) CloseHandle(*h);
    *h = NULL;
}

// ---- Command lines -----------------------------------------------------------------------------

// As programs of Microsoft's C library take them apart again: a backslash is one, but before
// quotes.
static void put_argument(tern_strbuf *line, const char *s) {
    if (line->len) tern_strbuf_putc(line, ' ');
    tern_strbuf_putc(line, '"');
    for (size_t n_slashes = 0;; s++) {
        if (*s == '\\') {
            n_slashes++;
            continue;
        }
        size_t n = *s && *s != '"' ? n_slashes : 2 * n_slashes + (*s == '"');
        for (; n > 0; n--) tern_strbuf_putc(line, '\\');
        n_slashes = 0;
        if (!*s) break;
        tern_strbuf_putc(line, *s);
    }
    tern_strbuf_putc(line, '"');
}

static bool has_end(const char *path, const char *end) {
    size_t n = strlen(path), n_end = strlen(end);
    return n > n_end && _stricmp(path + n - n_end, end) == 0;
}

// The program's file, "name" or "name.exe": where a name with slashes says, else in PATH, never in
// the current folder. NULL: there is none.
static char *find_program(const char *name) {
    bool is_path = false;
    for (const char *c = name; *c; c++) is_path |= tern_is_slash(*c) || *c == ':';
    if (!is_path) {
        const char *folders = getenv("PATH");
        char *found = tern_alloc(TERN_MEM_MISC, 32768);
        DWORD n = found ? SearchPathA(folders ? folders : "", name, ".exe", 32768, found, NULL) : 0;
        if (n > 0 && n < 32768) return found;
        tern_free(found);
        return NULL;
    }
    tern_strbuf path = {0};
    tern_strbuf_puts(&path, name);
    if (tern_path_look(name) != TERN_PATH_FILE) tern_strbuf_puts(&path, ".exe");
    char *found = !path.failed && tern_path_look(path.ptr) == TERN_PATH_FILE
                      ? tern_strdup(TERN_MEM_MISC, path.ptr)
                      : NULL;
    tern_strbuf_free(&path);
    return found;
}

// "NAME=VALUE", each with a 0 after it, and one more.
static void put_environment(tern_strbuf *block, const char *const *env) {
    for (; *env; env++) tern_strbuf_append(block, *env, strlen(*env) + 1);
    tern_strbuf_append(block, "\0", 2);
}

// ---- Starting ----------------------------------------------------------------------------------

typedef struct ends {
    HANDLE in[2], out[2], errors[2]; // to read, to write
} ends;

static void close_ends(ends *e, bool ours) {
    HANDLE *const mine[] = {&e->in[1], &e->out[0], &e->errors[0]};
    HANDLE *const its[] = {&e->in[0], &e->out[1], &e->errors[1]};
    for (int i = 0; i < 3; i++) close_handle(ours ? mine[i] : its[i]);
}

static bool open_ends(ends *e, bool shows_errors) {
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
    char name[64];
    snprintf(name, sizeof name, "\\\\.\\pipe\\tern-%016llx",
             (unsigned long long)tern_random_seed());
    // A pipe without a name cannot be written without waiting.
    e->in[1] = CreateNamedPipeA(
        name, PIPE_ACCESS_OUTBOUND | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
        PIPE_TYPE_BYTE | PIPE_REJECT_REMOTE_CLIENTS, 1, PIPE_BYTES, 0, 0, NULL);
    if (e->in[1] == INVALID_HANDLE_VALUE) return false;
    e->in[0] = CreateFileA(name, GENERIC_READ, 0, &inherited, OPEN_EXISTING, 0, NULL);
    if (e->in[0] == INVALID_HANDLE_VALUE) return false;
    if (!CreatePipe(&e->out[0], &e->out[1], &inherited, PIPE_BYTES)) return false;
    if (shows_errors) {
        HANDLE process = GetCurrentProcess(), shown = GetStdHandle(STD_ERROR_HANDLE);
        DuplicateHandle(process, shown, process, &e->errors[1], 0, TRUE, DUPLICATE_SAME_ACCESS);
    } else if (!CreatePipe(&e->errors[0], &e->errors[1], &inherited, PIPE_BYTES)) {
        return false;
    }
    SetHandleInformation(e->out[0], HANDLE_FLAG_INHERIT, 0);
    if (e->errors[0]) SetHandleInformation(e->errors[0], HANDLE_FLAG_INHERIT, 0);
    return true;
}

static HANDLE open_job(void) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {.BasicLimitInformation.LimitFlags =
                                                       JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    HANDLE job = CreateJobObjectA(NULL, NULL);
    if (job)
        SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    return job;
}

// Its own console, which is not seen: Ctrl-C in this process's does not reach it.
#define FLAGS (CREATE_SUSPENDED | CREATE_NO_WINDOW | EXTENDED_STARTUPINFO_PRESENT)

static bool create(child *c, const char *path, const child_desc *d, const ends *e) {
    STARTUPINFOEXA info = {.StartupInfo = {.cb = sizeof info,
                                           .dwFlags = STARTF_USESTDHANDLES,
                                           .hStdInput = e->in[0],
                                           .hStdOutput = e->out[1],
                                           .hStdError = e->errors[1]}};
    HANDLE inherited[] = {e->in[0], e->out[1], e->errors[1]};
    SIZE_T n = 0, n_inherited = e->errors[1] ? 3 : 2;
    PROCESS_INFORMATION started = {0};
    tern_strbuf line = {0}, block = {0};
    bool ok = false;
    put_argument(&line, path);
    for (const char *const *at = d->argv + 1; *at; at++) put_argument(&line, *at);
    put_environment(&block, d->env);
    InitializeProcThreadAttributeList(NULL, 1, 0, &n);
    info.lpAttributeList = tern_alloc(TERN_MEM_MISC, n);
    if (info.lpAttributeList && !line.failed && !block.failed &&
        InitializeProcThreadAttributeList(info.lpAttributeList, 1, 0, &n)) {
        ok = UpdateProcThreadAttribute(info.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
                                       inherited, n_inherited * sizeof *inherited, NULL, NULL) &&
             CreateProcessA(path, line.ptr, NULL, NULL, TRUE, FLAGS, block.ptr, d->folder,
                            &info.StartupInfo, &started);
        DeleteProcThreadAttributeList(info.lpAttributeList);
    }
    if (ok && !(AssignProcessToJobObject(c->job, started.hProcess) &&
                ResumeThread(started.hThread) != (DWORD)-1)) {
        TerminateProcess(started.hProcess, 1);
        close_handle(&started.hProcess);
        ok = false;
    }
    DWORD why = GetLastError();
    close_handle(&started.hThread);
    tern_free(info.lpAttributeList);
    tern_strbuf_free(&line);
    tern_strbuf_free(&block);
    c->process = (intptr_t)started.hProcess;
    SetLastError(why);
    return ok;
}

static bool own_pipes(child *c, ends *e) {
    HANDLE *const ours[] = {&e->in[1], &e->out[0], &e->errors[0]};
    for (int i = 0; i < CHILD_N_PIPES; i++) {
        if (!*ours[i]) continue;
        c->pipes[i] = _open_osfhandle((intptr_t)*ours[i], i == CHILD_IN ? 0 : _O_RDONLY);
        if (c->pipes[i] < 0) return false;
        *ours[i] = NULL;
    }
    writing *w = c->writing = tern_alloc(TERN_MEM_MISC, sizeof *w);
    if (!w) return false;
    w->is_pending = w->closes = false;
    w->state = (OVERLAPPED){.hEvent = CreateEventA(NULL, TRUE, FALSE, NULL)};
    return w->state.hEvent != NULL;
}

tern_status child_start(child *c, const child_desc *d, tern_error *err) {
    ends e = {0};
    *c = (child)CHILD_NONE;
    char *path = find_program(d->argv[0]);
    if (!path)
        return tern_fail(err, TERN_ERR_IO, "%.200s: it cannot be started: it is not there",
                         d->argv[0]);
    if (has_end(path, ".bat") || has_end(path, ".cmd")) { // other rules of quoting, with holes
        tern_free(path);
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%.200s: a batch file, not a program: name cmd.exe /c and then it",
                         d->argv[0]);
    }
    c->job = open_job();
    bool ok = c->job && open_ends(&e, d->shows_errors) && create(c, path, d, &e);
    DWORD why = GetLastError();
    ok = ok && own_pipes(c, &e);
    close_ends(&e, false);
    close_ends(&e, true);
    tern_free(path);
    if (ok) return TERN_OK;
    child_kill(c);
    return tern_fail(err, TERN_ERR_IO, "%.200s: it cannot be started: error %lu of the system",
                     d->argv[0], why);
}

// ---- Ending ------------------------------------------------------------------------------------

bool child_has_ended(child *c) {
    DWORD status;
    if (!c->process || c->has_ended) return true;
    if (WaitForSingleObject((HANDLE)c->process, 0) == WAIT_TIMEOUT) return false;
    c->has_ended = true;
    c->exit_status = GetExitCodeProcess((HANDLE)c->process, &status) ? (int)status : -1;
    return true;
}

bool child_ask_to_end(child *c) {
    (void)c;
    return false;
}

void child_kill(child *c) {
    writing *w = c->writing;
    HANDLE process = (HANDLE)c->process;
    if (c->job) TerminateJobObject(c->job, 1); // its descendants, too, even if it has ended
    if (process) WaitForSingleObject(process, 5000);
    child_has_ended(c);
    if (w && w->is_pending) { // the copy must stay as long as the system may read it
        DWORD n;
        CancelIoEx(handle_of(c, CHILD_IN), &w->state);
        GetOverlappedResult(handle_of(c, CHILD_IN), &w->state, &n, TRUE);
        w->is_pending = false;
    }
    for (int i = 0; i < CHILD_N_PIPES; i++) child_close(c, (child_pipe)i);
    if (w) close_handle(&w->state.hEvent);
    tern_free(w);
    c->writing = NULL;
    close_handle(&process);
    close_handle(&c->job);
    c->process = 0;
}

// ---- Pipes -------------------------------------------------------------------------------------

// Whether the last bytes have been taken; closes the pipe where that was asked for.
static bool is_written(child *c, bool *broken) {
    writing *w = c->writing;
    DWORD n;
    *broken = false;
    if (w && w->is_pending) {
        bool ok = GetOverlappedResult(handle_of(c, CHILD_IN), &w->state, &n, FALSE);
        if (!ok && GetLastError() == ERROR_IO_INCOMPLETE) return false;
        *broken = !ok;
        w->is_pending = false;
    }
    if (w && w->closes) child_close(c, CHILD_IN);
    return true;
}

void child_close(child *c, child_pipe which) {
    writing *w = c->writing;
    if (c->pipes[which] < 0) return;
    if (which == CHILD_IN && w && w->is_pending) {
        w->closes = true;
        return;
    }
    _close(c->pipes[which]);
    c->pipes[which] = -1;
}

bool child_is_open(const child *c, child_pipe which) {
    const writing *w = c->writing;
    return c->pipes[which] >= 0 && !(which == CHILD_IN && w && w->closes);
}

// Bytes that can be read at once; -1: none any more.
static long available(const child *c, child_pipe which) {
    DWORD n = 0;
    if (c->pipes[which] < 0) return -1;
    return PeekNamedPipe(handle_of(c, which), NULL, 0, NULL, &n, NULL) ? (long)n : -1;
}

// Whether reading finds bytes or the end.
static bool is_ready(const child *c, child_pipe which) {
    return c->pipes[which] >= 0 && available(c, which) != 0;
}

// Pipes cannot be waited for: it looks often at first, then less.
void child_wait(child *c, bool writes, double seconds) {
    bool broken;
    double end = tern_seconds() + seconds;
    for (DWORD pause = 0;; pause = pause < 8 ? 2 * pause + 1 : pause) {
        bool can_write = is_written(c, &broken) && writes;
        if (can_write || is_ready(c, CHILD_OUT) || is_ready(c, CHILD_ERRORS)) return;
        if (child_has_ended(c) || tern_seconds() >= end) return;
        Sleep(pause);
    }
}

bool child_read(child *c, child_pipe which, tern_strbuf *to, size_t n_most, size_t *n) {
    char bytes[16384];
    DWORD got = 0;
    long there = available(c, which);
    bool broken;
    *n = 0;
    is_written(c, &broken);
    if (there == 0) return true;
    if (there > (long)sizeof bytes) there = sizeof bytes;
    if (there < 0 || !ReadFile(handle_of(c, which), bytes, (DWORD)there, &got, NULL)) {
        child_close(c, which);
        return false;
    }
    *n = got;
    child_keep(to, n_most, bytes, *n);
    return true;
}

bool child_write(child *c, const char *bytes, size_t n, size_t *n_written) {
    writing *w = c->writing;
    bool broken;
    *n_written = 0;
    if (!child_is_open(c, CHILD_IN)) return false;
    if (!is_written(c, &broken)) return true;
    DWORD some = n < PIPE_BYTES ? (DWORD)n : PIPE_BYTES;
    memcpy(w->bytes, bytes, some);
    ResetEvent(w->state.hEvent);
    bool ok = !broken && WriteFile(handle_of(c, CHILD_IN), w->bytes, some, NULL, &w->state);
    w->is_pending = !broken && !ok && GetLastError() == ERROR_IO_PENDING;
    if (!ok && !w->is_pending) {
        child_close(c, CHILD_IN);
        return false;
    }
    *n_written = some;
    return true;
}

#endif
