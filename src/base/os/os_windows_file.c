// Files on Windows 10 and later.
//
// The system takes UTF-16, and names of up to 260 units unless they begin with \\?\ and are written
// as it writes them itself: tern_windows_path.
//
// A folder's lock is a kernel object named after the folder's number on its disk: it exists while
// it is held, survives renaming and ends with the process. It excludes processes on this machine,
// not on others of a network.
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <share.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_windows.h"

static bool fail_last(void) { // sets errno from the system's last error; returns false
    static const struct {
        DWORD code;
        int number;
    } numbers[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},    {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},      {ERROR_BAD_PATHNAME, ENOENT},
        {ERROR_ALREADY_EXISTS, EEXIST},    {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},  {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM}, {ERROR_OUTOFMEMORY, ENOMEM},
        {ERROR_DISK_FULL, ENOSPC},         {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {ERROR_INVALID_HANDLE, EBADF},     {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_ACCESS_DENIED, EACCES},     {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_NOT_SAME_DEVICE, EXDEV},    {ERROR_WRITE_PROTECT, EROFS},
    };
    DWORD code = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].code == code) errno = numbers[i].number;
    return false;
}

// ---- Names -------------------------------------------------------------------------------------

#define SHORT_PATH 240 // a folder's may have 248

// Elsewhere the system copies names where it wants them. These copies are not counted either, and
// no test makes them fail.

wchar_t *tern_windows_wide(const char *text) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = n > 0 ? malloc((size_t)n * sizeof *wide) : NULL;
    if (wide) MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, n);
    errno = wide ? errno : n > 0 ? ENOMEM : ENOENT;
    return wide;
}

char *tern_windows_narrow(const wchar_t *wide) {
    const int n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? malloc((size_t)n) : NULL;
    if (text) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, n, NULL, NULL);
    errno = text ? errno : ENOMEM;
    return text;
}

wchar_t *tern_windows_path(const char *path) {
    wchar_t *given = tern_windows_wide(path);
    const DWORD n = given ? GetFullPathNameW(given, 0, NULL, NULL) : 0;
    wchar_t *full = n ? malloc(((size_t)n + 8) * sizeof *full) : NULL;
    if (given) errno = n ? ENOMEM : ENOENT; // unless this succeeds
    if (full) {
        wchar_t *at = full + 8;
        GetFullPathNameW(given, n, at, NULL);
        const bool is_share = at[0] == L'\\' && at[1] == L'\\';
        const bool is_done = n < SHORT_PATH || (is_share && (at[2] == L'?' || at[2] == L'.'));
        const wchar_t *front = is_done ? L"" : is_share ? L"\\\\?\\UNC" : L"\\\\?\\";
        const size_t n_front = wcslen(front);
        if (!is_done && is_share) at++; // one backslash before the server
        memmove(full + n_front, at, (wcslen(at) + 1) * sizeof *full);
        memcpy(full, front, n_front * sizeof *full);
    }
    free(given);
    return full;
}

// ---- Paths -------------------------------------------------------------------------------------

#define SHARE_ALL (FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE)

static HANDLE open_path(const char *path, DWORD access, DWORD share, DWORD how, DWORD flags) {
    wchar_t *wide = tern_windows_path(path);
    HANDLE h = INVALID_HANDLE_VALUE;
    if (wide)
        h = CreateFileW(wide, access, share, NULL, how, flags, NULL);
    else
        SetLastError(errno == ENOMEM ? ERROR_OUTOFMEMORY : ERROR_INVALID_NAME);
    const DWORD code = GetLastError();
    free(wide);
    SetLastError(code);
    return h;
}

static HANDLE open_to_look(const char *path) { // folders, too
    return open_path(path, FILE_READ_ATTRIBUTES, SHARE_ALL, OPEN_EXISTING,
                     FILE_FLAG_BACKUP_SEMANTICS);
}

// Calls `job` with the system's form of a path; false: errno.
static bool with_path(const char *path, BOOL(WINAPI *job)(const wchar_t *path)) {
    wchar_t *wide = tern_windows_path(path);
    const bool ok = wide && (job(wide) || fail_last());
    free(wide);
    return ok;
}

static bool is_link(const wchar_t *path) {
    WIN32_FIND_DATAW found;
    HANDLE h = FindFirstFileW(path, &found);
    if (h == INVALID_HANDLE_VALUE) return false;
    FindClose(h);
    return (found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) &&
           (found.dwReserved0 == IO_REPARSE_TAG_SYMLINK ||
            found.dwReserved0 == IO_REPARSE_TAG_MOUNT_POINT);
}

tern_path_kind tern_path_look(const char *path) {
    BY_HANDLE_FILE_INFORMATION info;
    HANDLE h = open_to_look(path);
    if (h == INVALID_HANDLE_VALUE) {
        fail_last();
        return TERN_PATH_NONE;
    }
    tern_path_kind kind = TERN_PATH_OTHER;
    if (GetFileType(h) == FILE_TYPE_DISK && GetFileInformationByHandle(h, &info))
        kind = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? TERN_PATH_FOLDER : TERN_PATH_FILE;
    CloseHandle(h);
    return kind;
}

tern_path_kind tern_path_look_at(const char *path) {
    wchar_t *wide = tern_windows_path(path);
    if (!wide) return TERN_PATH_NONE;
    const DWORD attributes = GetFileAttributesW(wide);
    const bool is_there = attributes != INVALID_FILE_ATTRIBUTES || fail_last();
    const bool leads_on = is_there && (attributes & FILE_ATTRIBUTE_REPARSE_POINT) && is_link(wide);
    free(wide);
    return leads_on ? TERN_PATH_LINK : is_there ? tern_path_look(path) : TERN_PATH_NONE;
}

char *tern_path_real(const char *path) {
    HANDLE h = open_to_look(path);
    char *real = NULL, *found = NULL;
    if (h == INVALID_HANDLE_VALUE) {
        fail_last();
        return NULL;
    }
    // It may be called "\\?\C:\a" or "\\?\UNC\server\a", which nothing may be joined to with a '/'.
    const DWORD n = GetFinalPathNameByHandleW(h, NULL, 0, FILE_NAME_NORMALIZED);
    wchar_t *wide = n ? malloc(((size_t)n + 1) * sizeof *wide) : NULL;
    if (n && !wide) errno = ENOMEM;
    if (!n || (wide && !GetFinalPathNameByHandleW(h, wide, n + 1, FILE_NAME_NORMALIZED))) {
        fail_last();
    } else if (wide && !wcsncmp(wide, L"\\\\?\\UNC\\", 8)) {
        wide[6] = L'\\';
        found = tern_windows_narrow(wide + 6);
    } else if (wide) {
        found = tern_windows_narrow(wide + (wcsncmp(wide, L"\\\\?\\", 4) ? 0 : 4));
    }
    if (found) real = tern_strdup(TERN_MEM_MISC, found);
    if (found && !real) errno = ENOMEM;
    free(found);
    free(wide);
    CloseHandle(h);
    return real;
}

static tern_stamp stamp_of(HANDLE h) {
    BY_HANDLE_FILE_INFORMATION info;
    tern_stamp stamp = {0};
    if (h == INVALID_HANDLE_VALUE || !GetFileInformationByHandle(h, &info)) return stamp;
    uint64_t ticks = (uint64_t)info.ftLastWriteTime.dwHighDateTime << 32 |
                     info.ftLastWriteTime.dwLowDateTime; // in units of 100 ns
    stamp.device = info.dwVolumeSerialNumber;
    stamp.number = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    stamp.seconds = ticks / 10000000;
    stamp.nanoseconds = ticks % 10000000 * 100;
    return stamp;
}

tern_stamp tern_file_stamp(const char *path) {
    HANDLE h = open_to_look(path);
    tern_stamp stamp = stamp_of(h);
    if (h != INVALID_HANDLE_VALUE) CloseHandle(h);
    return stamp;
}

tern_stamp tern_fd_stamp(int fd) { return stamp_of((HANDLE)_get_osfhandle(fd)); }

bool tern_path_rename(const char *from, const char *to) {
    const DWORD flags = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
    wchar_t *source = tern_windows_path(from), *target = source ? tern_windows_path(to) : NULL;
    const bool ok = target && (MoveFileExW(source, target, flags) || fail_last());
    free(source);
    free(target);
    return ok;
}
bool tern_file_remove(const char *path) { return with_path(path, DeleteFileW); }
bool tern_folder_remove(const char *path) { return with_path(path, RemoveDirectoryW); }

bool tern_folder_create(const char *path, bool is_private) {
    (void)is_private; // a folder inherits the permissions of its parent
    wchar_t *wide = tern_windows_path(path);
    const bool ok = wide && (CreateDirectoryW(wide, NULL) || fail_last());
    free(wide);
    return ok;
}

bool tern_folder_is_others(const char *path) {
    (void)path; // permissions come from the parent folder
    return false;
}

void tern_folder_sync(const char *path) { (void)path; } // renaming writes through

uint64_t tern_disk_room(const char *folder) {
    ULARGE_INTEGER room;
    wchar_t *wide = tern_windows_path(folder);
    const bool ok = wide && GetDiskFreeSpaceExW(wide, &room, NULL, NULL);
    free(wide);
    return ok ? room.QuadPart : UINT64_MAX;
}

// ---- Folders -----------------------------------------------------------------------------------

tern_status tern_folder_read(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err) {
    WIN32_FIND_DATAW e;
    char *pattern = tern_path_join(folder, "*");
    wchar_t *wide = pattern ? tern_windows_path(pattern) : NULL;
    tern_free(pattern);
    if (!wide && errno == ENOMEM) return tern_fail_memory(err, strlen(folder) + 3);
    HANDLE h = wide ? FindFirstFileW(wide, &e) : INVALID_HANDLE_VALUE;
    free(wide);
    if (h == INVALID_HANDLE_VALUE) {
        fail_last();
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    }
    tern_status status = TERN_OK;
    do {
        char *name = tern_windows_narrow(e.cFileName);
        status = name ? tern_names_add_entry(names, name, begin, end, err)
                      : tern_fail_memory(err, sizeof e.cFileName);
        free(name);
    } while (status == TERN_OK && FindNextFileW(h, &e));
    FindClose(h);
    return status;
}

void tern_handle_close(void *handle) { CloseHandle(handle); }

tern_lock_state tern_folder_lock(tern_folder *f) {
    tern_stamp s = tern_file_stamp(f->path);
    char name[80];
    if (!s.device && !s.number) return TERN_LOCK_NONE;
    snprintf(name, sizeof name, "Global\\tern-folder-%016llx-%016llx", (unsigned long long)s.device,
             (unsigned long long)s.number);
    HANDLE h = CreateMutexA(NULL, FALSE, name);
    bool is_taken = GetLastError() == ERROR_ALREADY_EXISTS || GetLastError() == ERROR_ACCESS_DENIED;
    if (h && is_taken) CloseHandle(h);
    if (is_taken) return TERN_LOCK_TAKEN;
    f->handle = h;
    return h ? TERN_LOCK_HELD : TERN_LOCK_NONE;
}

// ---- Opening files -----------------------------------------------------------------------------

// Makes a descriptor, which then owns the handle; -1: errno.
static int descriptor_of(HANDLE h, int flags) {
    if (h == INVALID_HANDLE_VALUE) {
        fail_last();
        return -1;
    }
    int fd = _open_osfhandle((intptr_t)h, flags | _O_BINARY | _O_NOINHERIT);
    if (fd < 0) CloseHandle(h);
    return fd;
}

tern_status tern_file_open_regular(int *fd, const char *path, uint64_t *n_bytes, tern_error *err) {
    tern_path_kind kind = tern_path_look(path);
    *fd = -1;
    if (kind != TERN_PATH_NONE && kind != TERN_PATH_FILE) {
        errno = EINVAL;
        return tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    }
    // Others may replace it meanwhile, as on other systems.
    if (kind == TERN_PATH_FILE)
        *fd = descriptor_of(
            open_path(path, GENERIC_READ, SHARE_ALL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL),
            _O_RDONLY);
    if (*fd < 0)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    *n_bytes = tern_fd_size(*fd);
    return TERN_OK;
}

tern_status tern_file_open_log(int *fd, const char *path, uint64_t n_keep, bool is_private,
                               tern_error *err) {
    (void)is_private; // permissions come from the folder
    *fd = -1;
    tern_path_kind kind = tern_path_look(path);
    if (kind != TERN_PATH_NONE && kind != TERN_PATH_FILE)
        return tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    // That nobody else may write is the lock; renaming and removing it are allowed.
    HANDLE h = open_path(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_DELETE,
                         OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL);
    if (h == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION)
        return tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", path);
    *fd = descriptor_of(h, _O_APPEND);
    if (*fd >= 0 && (n_keep == UINT64_MAX || tern_fd_cut(*fd, n_keep))) return TERN_OK;
    tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (*fd >= 0) _close(*fd);
    *fd = -1;
    return TERN_ERR_IO;
}

int tern_file_open_shared(const char *path, bool anyway, bool *taken) {
    HANDLE h = open_path(path, GENERIC_READ | GENERIC_WRITE, anyway ? SHARE_ALL : 0, OPEN_ALWAYS,
                         FILE_ATTRIBUTE_NORMAL);
    *taken = h == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION && !anyway;
    return descriptor_of(h, 0);
}

int tern_file_create(const char *path, const char *like) {
    (void)like; // permissions come from the folder
    return descriptor_of(
        open_path(path, GENERIC_READ | GENERIC_WRITE, SHARE_ALL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL),
        0);
}

int tern_file_create_private(const char *path) { return tern_file_create(path, ""); }

static int standard_of(const char *path) {
    return !strcmp(path, "/dev/stdout") ? 1 : !strcmp(path, "/dev/stderr") ? 2 : -1;
}

bool tern_device_is(const char *path) {
    return standard_of(path) >= 0 || tern_path_look(path) == TERN_PATH_OTHER;
}

int tern_device_open(const char *path, bool *is_stdout) {
    int fd = standard_of(path);
    *is_stdout = fd == 1;
    if (fd < 0)
        return descriptor_of(open_path(path, GENERIC_WRITE, SHARE_ALL, OPEN_EXISTING, 0), 0);
    int copy = _dup(fd);
    if (copy >= 0) _setmode(copy, _O_BINARY);
    return copy;
}

// ---- Descriptors -------------------------------------------------------------------------------

#define PIECE ((uint64_t)1 << 30)

uint64_t tern_fd_size(int fd) {
    LARGE_INTEGER n;
    return GetFileSizeEx((HANDLE)_get_osfhandle(fd), &n) ? (uint64_t)n.QuadPart : 0;
}

int64_t tern_fd_read(int fd, void *to, size_t n) {
    size_t got = 0;
    while (got < n) {
        size_t left = n - got;
        int done = _read(fd, (char *)to + got, (unsigned)(left < PIECE ? left : PIECE));
        if (done < 0) return -1;
        if (done == 0) break;
        got += (size_t)done;
    }
    return (int64_t)got;
}

int64_t tern_fd_read_at(int fd, void *to, size_t n, uint64_t offset) {
    HANDLE h = (HANDLE)_get_osfhandle(fd);
    size_t got = 0;
    while (got < n) {
        uint64_t left = n - got, at = offset + got;
        DWORD done = 0;
        OVERLAPPED place = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
        DWORD piece = (DWORD)(left < PIECE ? left : PIECE);
        bool ok = ReadFile(h, (char *)to + got, piece, &done, &place);
        if (!ok && GetLastError() != ERROR_HANDLE_EOF) {
            fail_last();
            return -1;
        }
        if (done == 0) break;
        got += done;
    }
    return (int64_t)got;
}

bool tern_fd_write(int fd, const void *bytes, uint64_t n) {
    for (uint64_t put = 0; put < n;) {
        uint64_t left = n - put;
        int done = _write(fd, (const char *)bytes + put, (unsigned)(left < PIECE ? left : PIECE));
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return false;
        put += (uint64_t)done;
    }
    return true;
}

bool tern_fd_write_at(int fd, const void *bytes, uint64_t n, uint64_t offset) {
    int64_t before = _lseeki64(fd, 0, SEEK_CUR);
    bool ok =
        before >= 0 && _lseeki64(fd, (int64_t)offset, SEEK_SET) >= 0 && tern_fd_write(fd, bytes, n);
    return before >= 0 && _lseeki64(fd, before, SEEK_SET) >= 0 && ok;
}

bool tern_fd_cut(int fd, uint64_t n) {
    int reason = _chsize_s(fd, (int64_t)n);
    if (reason) errno = reason;
    return reason == 0;
}

bool tern_fd_sync(int fd) { return _commit(fd) == 0; }
bool tern_fd_close(int fd) { return _close(fd) == 0; }

#endif
