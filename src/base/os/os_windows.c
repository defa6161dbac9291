// Windows 10 and later: threads, time, memory, libraries.
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define _CRT_RAND_S
#include <windows.h>
#include <errno.h>
#include <io.h>
#include <malloc.h>
#include <psapi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_library.h"
#include "base/os/os_memory.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"
#include "base/os/os_windows.h"

// ---- Threads -----------------------------------------------------------------------------------

_Static_assert(sizeof(SRWLOCK) <= sizeof(tern_mutex), "room for a mutex");
_Static_assert(sizeof(CONDITION_VARIABLE) <= sizeof(tern_condition), "room for a condition");

static SRWLOCK *lock_of(tern_mutex *m) { return (SRWLOCK *)&m->room; }
static CONDITION_VARIABLE *condition_of(tern_condition *c) {
    return (CONDITION_VARIABLE *)&c->room;
}

void tern_mutex_init(tern_mutex *m) { InitializeSRWLock(lock_of(m)); }
void tern_mutex_free(tern_mutex *m) { (void)m; }
void tern_mutex_lock(tern_mutex *m) { AcquireSRWLockExclusive(lock_of(m)); }
bool tern_mutex_try_lock(tern_mutex *m) { return TryAcquireSRWLockExclusive(lock_of(m)) != 0; }
void tern_mutex_unlock(tern_mutex *m) { ReleaseSRWLockExclusive(lock_of(m)); }

void tern_condition_init(tern_condition *c) { InitializeConditionVariable(condition_of(c)); }
void tern_condition_free(tern_condition *c) { (void)c; }
void tern_condition_wake_all(tern_condition *c) { WakeAllConditionVariable(condition_of(c)); }
void tern_condition_wait(tern_condition *c, tern_mutex *m) {
    SleepConditionVariableSRW(condition_of(c), lock_of(m), INFINITE, 0);
}

static DWORD WINAPI begin(void *ctx) {
    const tern_thread *t = ctx;
    t->fn(t->arg);
    return 0;
}

bool tern_thread_start(tern_thread *t, void (*fn)(void *arg), void *arg) {
    *t = (tern_thread){.fn = fn, .arg = arg};
    HANDLE h = CreateThread(NULL, 0, begin, t, 0, NULL);
    t->handle = h;
    return h != NULL;
}

void tern_thread_join(tern_thread *t) {
    WaitForSingleObject(t->handle, INFINITE);
    CloseHandle(t->handle);
}

int tern_n_processors(void) {
    DWORD n = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    DWORD_PTR mine, all;
    // Processors of its group, if it is restricted to some of them; 0 if it is in several groups.
    if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) && mine && mine != all)
        for (n = 0; mine; mine &= mine - 1) n++;
    return n > 0 ? (int)n : 1;
}

// ---- Time --------------------------------------------------------------------------------------

double tern_seconds(void) {
    LARGE_INTEGER now, rate;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return (double)now.QuadPart / (double)rate.QuadPart;
}

void tern_sleep(double seconds) { Sleep((DWORD)(seconds * 1e3 + 0.999)); }

bool tern_local_time(struct tm *now) {
    time_t t = time(NULL);
    return localtime_s(now, &t) == 0;
}

uint64_t tern_random_seed(void) {
    unsigned low = 0, high = 0;
    rand_s(&low);
    rand_s(&high);
    return (uint64_t)high << 32 | low;
}

// ---- Memory ------------------------------------------------------------------------------------

void *tern_heap_take(size_t n) { return _aligned_malloc(n, 64); }
void tern_heap_give(void *block) { _aligned_free(block); }

// Zeroed pages that become resident when touched. Large pages need a privilege that programs seldom
// have. An address can only be chosen for a whole reservation: reserve more, find a multiple in it,
// and reserve again there, unless another thread was faster.
void *tern_pages_take(size_t n, bool huge) {
    (void)huge;
    for (int i = 0; i < 8; i++) {
        char *raw = VirtualAlloc(NULL, n + TERN_PAGES_BYTES, MEM_RESERVE, PAGE_NOACCESS);
        if (!raw) return NULL;
        uintptr_t mask = TERN_PAGES_BYTES - 1;
        void *start = (void *)(((uintptr_t)raw + mask) & ~mask);
        VirtualFree(raw, 0, MEM_RELEASE);
        void *pages = VirtualAlloc(start, n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
        if (pages) return pages;
    }
    return NULL;
}

void tern_pages_give(void *pages, size_t n) {
    (void)n;
    VirtualFree(pages, 0, MEM_RELEASE);
}

size_t tern_process_memory_max(void) {
    PROCESS_MEMORY_COUNTERS c;
    return K32GetProcessMemoryInfo(GetCurrentProcess(), &c, sizeof c) ? c.PeakWorkingSetSize : 0;
}

size_t tern_process_memory_now(void) {
    PROCESS_MEMORY_COUNTERS c;
    return K32GetProcessMemoryInfo(GetCurrentProcess(), &c, sizeof c) ? c.WorkingSetSize : 0;
}

uint64_t tern_memory_available(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullAvailPhys : 0;
}

void *tern_map(int fd, size_t n) {
    HANDLE file = (HANDLE)_get_osfhandle(fd);
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    void *mapped = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, n) : NULL;
    if (mapping) CloseHandle(mapping); // the view keeps it
    if (!mapped) errno = ENOMEM;
    return mapped;
}

void tern_unmap(void *mapped, size_t n) {
    (void)n;
    UnmapViewOfFile(mapped);
}

// The system reclaims pages of files when it needs them.
void tern_map_drop(const void *part, size_t n) { (void)part, (void)n; }

// ---- Libraries ---------------------------------------------------------------------------------

bool tern_can_load_libraries(void) { return true; }

tern_status tern_library_open(void **library, const char *path, tern_error *err) {
    // What a library in a folder needs itself is looked for there, too.
    const bool has_folder = tern_path_name(path) != path;
    const DWORD flags = has_folder ? LOAD_WITH_ALTERED_SEARCH_PATH : 0;
    wchar_t *wide = has_folder ? tern_windows_path(path) : tern_windows_wide(path), said[256];
    *library = wide ? (void *)LoadLibraryExW(wide, NULL, flags) : NULL;
    const DWORD code = wide ? GetLastError() : ERROR_INVALID_NAME;
    free(wide);
    if (*library) return TERN_OK;
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code,
                             0, said, sizeof said / sizeof *said, NULL);
    while (n && (said[n - 1] <= L' ' || said[n - 1] == L'.')) n--;
    said[n] = 0;
    char *words = tern_windows_narrow(said);
    tern_fail(err, TERN_ERR_DEVICE, "%s: cannot be loaded: %s (error %lu)", path,
              words && *words ? words : "the system does not say why", code);
    free(words);
    return TERN_ERR_DEVICE;
}

void *tern_library_symbol(void *library, const char *name) {
    FARPROC function = GetProcAddress((HMODULE)library, name);
    void *symbol;
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

static char *path_of(HMODULE module) { // NULL: unknown, or out of memory
    wchar_t *wide = NULL;
    char *path = NULL;
    for (DWORD size = 256; size <= 65536; size *= 2) {
        wchar_t *grown = tern_realloc(TERN_MEM_MISC, wide, size * sizeof *wide);
        if (!grown) break;
        wide = grown;
        const DWORD n = GetModuleFileNameW(module, wide, size);
        if (n == 0) break;
        if (n < size) {
            char *narrow = tern_windows_narrow(wide);
            path = narrow ? tern_strdup(TERN_MEM_MISC, narrow) : NULL;
            free(narrow);
            break;
        }
    }
    tern_free(wide);
    return path;
}

char *tern_library_of(const void *function) {
    HMODULE module;
    DWORD flags =
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    return GetModuleHandleExA(flags, function, &module) ? path_of(module) : NULL;
}

bool tern_gpu_may_be_here(void) { return true; }

tern_status tern_program_folder(char **folder, tern_error *err) {
    char *path = path_of(NULL);
    *folder = path ? tern_path_folder(path) : tern_strdup(TERN_MEM_MISC, "");
    tern_free(path);
    return *folder ? TERN_OK : tern_fail_memory(err, 1);
}

// ---- What <string.h> lacks ---------------------------------------------------------------------

void *memmem(const void *text, size_t n, const void *part, size_t n_part) {
    const char *at = text, *wanted = part;
    if (n_part == 0) return (void *)at;
    for (size_t left = n; left >= n_part; left--, at++) {
        const char *hit = memchr(at, wanted[0], left - n_part + 1);
        if (!hit) return NULL;
        left -= (size_t)(hit - at);
        at = hit;
        if (!memcmp(at, part, n_part)) return (void *)at;
    }
    return NULL;
}

void *memrchr(const void *text, int c, size_t n) {
    const unsigned char *bytes = text;
    while (n-- > 0)
        if (bytes[n] == (unsigned char)c) return (void *)(bytes + n);
    return NULL;
}

#endif
