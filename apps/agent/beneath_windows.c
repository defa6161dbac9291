// The system's own call opens a name in an open folder; CreateFile() would join it with a path, and
// find devices and streams.
#include "apps/agent/beneath.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <winternl.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <string.h>
#include "base/alloc.h"

#define NAME_UNITS 256 // of UTF-16 in a name
#define LIST_BYTES 65536

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

static int descriptor_of(HANDLE h) {
    int fd = _open_osfhandle((intptr_t)h, _O_RDONLY | _O_BINARY);
    if (fd < 0) CloseHandle(h);
    return fd;
}

static tern_path_kind kind_of(HANDLE h, uint64_t *n_bytes) {
    BY_HANDLE_FILE_INFORMATION info;
    if (GetFileType(h) != FILE_TYPE_DISK) return TERN_PATH_OTHER;
    if (!GetFileInformationByHandle(h, &info)) return TERN_PATH_NONE;
    *n_bytes = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    if (info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) return TERN_PATH_LINK;
    return info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? TERN_PATH_FOLDER : TERN_PATH_FILE;
}

// ---- Names -------------------------------------------------------------------------------------

static bool is_device(const char *name) {
    static const char *const devices[] = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"};
    size_t n = strcspn(name, ".");
    while (n > 0 && name[n - 1] == ' ') n--;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strlen(devices[i]) == n && !_strnicmp(name, devices[i], n)) return true;
    bool has_number = n >= 4 && (!_strnicmp(name, "COM", 3) || !_strnicmp(name, "LPT", 3));
    // A digit, also a raised one, which is two bytes.
    return has_number && (n == 4 ? name[3] >= '0' && name[3] <= '9' : n == 5 && name[3] < 0);
}

// Neither a stream of a file ("a.txt:b"), a pattern, a device, nor a name that other calls of the
// system would change.
static bool is_name(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || name[n - 1] == '.' || name[n - 1] == ' ' || is_device(name)) return false;
    for (const char *c = name; *c; c++)
        if (strchr("/\\:*?\"<>|", *c) || (*c > 0 && *c < 32)) return false;
    return true;
}

// ---- Opening -----------------------------------------------------------------------------------

int beneath_root(const char *path) {
    uint64_t n;
    HANDLE h = CreateFileA(path, FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES | FILE_TRAVERSE,
                           FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (h == INVALID_HANDLE_VALUE) {
        errno = GetLastError() == ERROR_ACCESS_DENIED ? EACCES : ENOENT;
        return -1;
    }
    if (kind_of(h, &n) == TERN_PATH_FOLDER) return descriptor_of(h);
    CloseHandle(h);
    errno = ENOTDIR;
    return -1;
}

// A name in a folder, "": the folder itself. NULL: there is none.
static HANDLE open_in(int folder, const char *name, ACCESS_MASK access) {
    WCHAR wide[NAME_UNITS];
    HANDLE h = NULL;
    IO_STATUS_BLOCK io;
    int n = 0;
    if (*name) {
        n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, wide, NAME_UNITS) - 1;
        if (n <= 0) return NULL;
    }
    UNICODE_STRING text = {.Buffer = wide,
                           .Length = (USHORT)(n * (int)sizeof *wide),
                           .MaximumLength = (USHORT)(n * (int)sizeof *wide)};
    OBJECT_ATTRIBUTES at = {.Length = sizeof at,
                            .RootDirectory = handle_of(folder),
                            .ObjectName = &text,
                            .Attributes = OBJ_CASE_INSENSITIVE};
    NTSTATUS status = NtCreateFile(
        &h, access | FILE_READ_ATTRIBUTES | SYNCHRONIZE, &at, &io, NULL, 0,
        FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, FILE_OPEN,
        FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_REPARSE_POINT | FILE_OPEN_FOR_BACKUP_INTENT, NULL,
        0);
    return status >= 0 ? h : NULL;
}

int beneath_open(int folder, const char *name, const char **why) {
    uint64_t n;
    const bool is_same = !strcmp(name, ".");
    if (!strcmp(name, "..")) {
        *why = "a path may not have '..'";
        return -1;
    }
    if (!is_same && !is_name(name)) {
        *why = "no file or folder has such a name";
        return -1;
    }
    *why = "that is not a folder";
    if (beneath_kind(folder, &n) != TERN_PATH_FOLDER) return -1;
    *why = "there is no such file or folder";
    if (!is_same && beneath_look(folder, name, &n) == TERN_PATH_NONE) return -1;
    // The open one is judged, not its name.
    HANDLE h = open_in(folder, is_same ? "" : name, FILE_READ_DATA);
    *why = "it cannot be opened";
    if (!h) return -1;
    tern_path_kind kind = kind_of(h, &n);
    if (kind == TERN_PATH_FILE || kind == TERN_PATH_FOLDER) return descriptor_of(h);
    *why = kind == TERN_PATH_LINK ? "links are not followed" : "it is neither a file nor a folder";
    CloseHandle(h);
    return -1;
}

tern_path_kind beneath_kind(int fd, uint64_t *n_bytes) { return kind_of(handle_of(fd), n_bytes); }

tern_path_kind beneath_look(int folder, const char *name, uint64_t *n_bytes) {
    HANDLE h = open_in(folder, name, 0);
    tern_path_kind kind = h ? kind_of(h, n_bytes) : TERN_PATH_NONE;
    if (h) CloseHandle(h);
    return kind;
}

// ---- Listing -----------------------------------------------------------------------------------

static bool add_name(const FILE_ID_BOTH_DIR_INFO *e, tern_names *names) {
    char name[3 * NAME_UNITS + 1];
    int n = WideCharToMultiByte(CP_UTF8, 0, e->FileName, (int)(e->FileNameLength / sizeof(WCHAR)),
                                name, sizeof name - 1, NULL, NULL);
    name[n > 0 ? n : 0] = 0;
    return n <= 0 || tern_names_add_entry(names, name, "", "", NULL) == TERN_OK;
}

bool beneath_names(int folder, size_t n_most, tern_names *names) {
    char *list = tern_alloc(TERN_MEM_MISC, LIST_BYTES);
    bool ok = list != NULL;
    FILE_INFO_BY_HANDLE_CLASS what = FileIdBothDirectoryRestartInfo;
    while (ok && names->n < n_most &&
           GetFileInformationByHandleEx(handle_of(folder), what, list, LIST_BYTES)) {
        what = FileIdBothDirectoryInfo;
        for (const char *at = list; ok;
             at += ((const FILE_ID_BOTH_DIR_INFO *)at)->NextEntryOffset) {
            ok = add_name((const FILE_ID_BOTH_DIR_INFO *)at, names);
            if (!((const FILE_ID_BOTH_DIR_INFO *)at)->NextEntryOffset) break;
        }
    }
    ok = ok && (names->n >= n_most || GetLastError() == ERROR_NO_MORE_FILES);
    tern_free(list);
    return ok;
}

#endif
