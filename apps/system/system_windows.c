// See system.h: Windows 10 and later.
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <fcntl.h>
#include <io.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/system/system.h"

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

void system_begin(void) {
    for (int fd = 0; fd < 3; fd++) {
        DWORD mode;
        _setmode(fd, _O_BINARY);
        if (fd && GetConsoleMode(handle_of(fd), &mode))
            SetConsoleMode(handle_of(fd),
                           mode | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
}

void system_pipes_may_break(void) {} // there it never does

// ---- Terminal ----------------------------------------------------------------------------------

int terminal_columns(int fd) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(handle_of(fd), &info)) return 0;
    return info.srWindow.Right - info.srWindow.Left + 1;
}

bool terminal_has_styles(int fd) {
    DWORD mode;
    return GetConsoleMode(handle_of(fd), &mode) && (mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

// Whether something waits but moves of the mouse and keys that are released.
static bool has_typed(HANDLE console) {
    INPUT_RECORD record;
    DWORD n;
    while (PeekConsoleInputW(console, &record, 1, &n) && n) {
        if (record.EventType == KEY_EVENT && record.Event.KeyEvent.bKeyDown) return true;
        ReadConsoleInputW(console, &record, 1, &n);
    }
    return false;
}

bool terminal_wait(double seconds) {
    HANDLE console = handle_of(0);
    const ULONGLONG end = GetTickCount64() + (ULONGLONG)(seconds * 1e3);
    for (;;) {
        const ULONGLONG now = GetTickCount64();
        const DWORD left = now < end ? (DWORD)(end - now) : 0;
        if (WaitForSingleObject(console, left) != WAIT_OBJECT_0) return false;
        if (has_typed(console)) return true;
    }
}

bool terminal_forget(void) {
    const bool any = has_typed(handle_of(0));
    FlushConsoleInputBuffer(handle_of(0));
    return any;
}

// A stream would read bytes, and older consoles give wrong ones beyond ASCII.
bool terminal_line(bool (*take)(void *user, const char *bytes, size_t n), void *user) {
    HANDLE console = handle_of(0);
    WCHAR wide[1024 + 1];
    char bytes[3 * 1024 + 3];
    WCHAR held = 0; // the first half of a character
    for (;;) {
        DWORD n = 0;
        wide[0] = held;
        if (!ReadConsoleW(console, wide + (held != 0), 1024, &n, NULL) || n == 0) return false;
        n += held != 0;
        if (!held && wide[0] == 26) return false; // Ctrl-Z
        const bool ends = wide[n - 1] == '\n';
        held = IS_HIGH_SURROGATE(wide[n - 1]) ? wide[n - 1] : 0;
        if (held) n--;
        const int used =
            WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, bytes, sizeof bytes, NULL, NULL);
        if (!take(user, bytes, (size_t)used)) return false;
        if (ends) return true;
    }
}

// ---- Interrupts --------------------------------------------------------------------------------

static _Atomic(interrupt_fn) on_interrupt;

static BOOL WINAPI on_control(DWORD event) { // on a thread of its own
    interrupt_fn fn = atomic_load(&on_interrupt);
    if (!fn) return FALSE; // the system ends the process
    if (!fn()) atomic_store(&on_interrupt, NULL);
    // When a console is closed, the process ends as soon as this returns: it gets the seconds that
    // the system allows, in which main may end.
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
    return TRUE;
}

interrupt_fn system_on_interrupt(interrupt_fn fn, bool also_ignored) {
    static atomic_flag is_set = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_set)) SetConsoleCtrlHandler(on_control, TRUE);
    if (also_ignored) SetConsoleCtrlHandler(NULL, FALSE);
    return atomic_exchange(&on_interrupt, fn);
}

// ---- The user ----------------------------------------------------------------------------------

bool system_user_folder(user_folder which, const char *parts[2]) {
    parts[0] = getenv(which == USER_HOME ? "USERPROFILE" : "LOCALAPPDATA");
    parts[1] = "";
    return parts[0] && *parts[0];
}

uint64_t system_memory(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullTotalPhys : 0;
}

#endif
