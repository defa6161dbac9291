// See os_processors.h. A container's limit is a quota of processor time: two threads that spin on
// half a processor each are stopped half of the time. Version 2 of control groups has it in
// cpu.max, version 1 in two files; the tightest limit of a group and its parents counts.
#include "base/os/os_processors.h"
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__linux__)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/strbuf.h"

typedef struct mount { // of a group hierarchy
    tern_strbuf group; // the group visible at `point`
    tern_strbuf point;
    bool is_v2;
} mount;

static FILE *open_under(const char *root, const char *folder, size_t n_folder, const char *name) {
    tern_strbuf path = {0};
    tern_strbuf_printf(&path, "%s%.*s/%s", root, (int)n_folder, folder, name);
    FILE *f = path.failed ? NULL : fopen(path.ptr, "re");
    tern_strbuf_free(&path);
    return f;
}

static bool next_line(FILE *f, tern_strbuf *line) {
    tern_strbuf_clear(line);
    for (int c; (c = getc(f)) != EOF && c != '\n';)
        if (line->len < 65536) tern_strbuf_putc(line, (char)c);
    return !line->failed && (line->len > 0 || !feof(f));
}

// Whether `name` is in a list separated by commas.
static bool lists(const char *list, size_t n, const char *name) {
    size_t len = strlen(name);
    for (const char *at = list, *end = list + n; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t part = (size_t)((comma ? comma : end) - at);
        if (part == len && !memcmp(at, name, len)) return true;
        at += part + 1;
    }
    return false;
}

// ---- Where the files are -----------------------------------------------------------------------

// The n-th word of a line, from 0; blanks in names are written \040.
static const char *word(const char *line, int n, size_t *len) {
    while (n-- > 0 && line) {
        line = strchr(line, ' ');
        if (line) line++;
    }
    *len = line ? strcspn(line, " ") : 0;
    return line;
}

static void unescape(const char *text, size_t n, tern_strbuf *out) {
    tern_strbuf_clear(out);
    for (size_t i = 0; i < n; i++) {
        bool is_code = text[i] == '\\' && i + 3 < n && strspn(text + i + 1, "01234567") >= 3;
        if (is_code) {
            int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
            tern_strbuf_putc(out, (char)code);
            i += 3;
        } else {
            tern_strbuf_putc(out, text[i]);
        }
    }
}

// A line of /proc/self/mountinfo: "36 35 0:31 GROUP POINT options ... - cgroup2 source options".
static bool read_mount(const char *line, mount *m) {
    size_t n_group, n_point, n_type, n_options;
    const char *rest = strstr(line, " - ");
    const char *group = word(line, 3, &n_group), *point = word(line, 4, &n_point);
    if (!rest || !group || !point || point > rest) return false;
    const char *type = word(rest + 3, 0, &n_type), *options = word(rest + 3, 2, &n_options);
    m->is_v2 = n_type == 7 && !memcmp(type, "cgroup2", 7);
    bool is_v1 =
        n_type == 6 && !memcmp(type, "cgroup", 6) && options && lists(options, n_options, "cpu");
    if (!m->is_v2 && !is_v1) return false;
    unescape(group, n_group, &m->group);
    unescape(point, n_point, &m->point);
    return !m->group.failed && !m->point.failed;
}

// The group of this process, from a line of /proc/self/cgroup: "0::/GROUP", or
// "4:cpu,cpuacct:/GROUP".
static const char *group_in(const char *line, bool is_v2) {
    const char *controllers = strchr(line, ':');
    const char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return NULL;
    size_t n = (size_t)(group - controllers - 1);
    if (is_v2 ? n != 0 || strncmp(line, "0:", 2) != 0 : !lists(controllers + 1, n, "cpu"))
        return NULL;
    return group + 1;
}

// ---- Quotas ------------------------------------------------------------------------------------

static bool read_two(FILE *f, double *first, double *second) {
    bool ok = f && fscanf(f, "%lf %lf", first, second) == 2;
    if (f) fclose(f);
    return ok;
}

static bool read_one(FILE *f, double *value) {
    bool ok = f && fscanf(f, "%lf", value) == 1;
    if (f) fclose(f);
    return ok;
}

static int least(int n, const char *root, const char *folder, size_t n_folder, bool is_v2) {
    double quota, period;
    bool has = is_v2
                   ? read_two(open_under(root, folder, n_folder, "cpu.max"), &quota, &period)
                   : read_one(open_under(root, folder, n_folder, "cpu.cfs_quota_us"), &quota) &&
                         read_one(open_under(root, folder, n_folder, "cpu.cfs_period_us"), &period);
    if (!has || !(quota > 0) || !(period > 0) || quota / period >= n) return n; // "max", and -1
    int worth = (int)(quota / period + 0.5);
    return worth > 0 ? worth : 1;
}

// The least limit of a group and its parents, up to the mount point.
static int least_of_path(int n, const char *root, const mount *m, const char *group) {
    tern_strbuf path = {0};
    size_t n_seen = strcmp(m->group.ptr, "/") != 0 ? m->group.len : 0;
    bool is_inside =
        !strncmp(group, m->group.ptr, n_seen) && (!group[n_seen] || group[n_seen] == '/');
    if (!is_inside) group = "", n_seen = 0; // a container may get names that it cannot see
    tern_strbuf_printf(&path, "%s%s", m->point.ptr, group + n_seen);
    for (size_t at = path.failed ? 0 : path.len; !path.failed;) {
        while (at > m->point.len && path.ptr[at - 1] == '/') at--;
        n = least(n, root, path.ptr, at, m->is_v2);
        if (at <= m->point.len) break;
        while (at > m->point.len && path.ptr[at - 1] != '/') at--;
    }
    tern_strbuf_free(&path);
    return n;
}

int tern_processors_granted(const char *root, int n) {
    tern_strbuf line = {0}, group = {0};
    mount m = {0};
    FILE *mounts = open_under(root, "", 0, "proc/self/mountinfo");
    while (mounts && n > 1 && next_line(mounts, &line)) {
        FILE *groups =
            read_mount(line.ptr, &m) ? open_under(root, "", 0, "proc/self/cgroup") : NULL;
        while (groups && next_line(groups, &group)) {
            const char *mine = group.len ? group_in(group.ptr, m.is_v2) : NULL;
            if (mine) n = least_of_path(n, root, &m, mine);
        }
        if (groups) fclose(groups);
    }
    if (mounts) fclose(mounts);
    tern_strbuf_free(&line);
    tern_strbuf_free(&group);
    tern_strbuf_free(&m.group);
    tern_strbuf_free(&m.point);
    return n;
}
#endif

// ---- Tiles -------------------------------------------------------------------------------------

#if defined(__linux__) && defined(__x86_64__)
bool tern_processor_tiles(void) {
    enum { GET_FEATURES = 0x1021, ASK_FEATURE = 0x1023, TILE_SHAPES = 17, TILES = 18 };
    unsigned long features = 0; // of XCR0 that the system knows
    if (syscall(SYS_arch_prctl, GET_FEATURES, &features) != 0) return false;
    if ((features >> TILE_SHAPES & features >> TILES & 1) == 0) return false;
    return syscall(SYS_arch_prctl, ASK_FEATURE, TILES) == 0;
}
#else
bool tern_processor_tiles(void) { return false; }
#endif

// ---- ARM ---------------------------------------------------------------------------------------

#if defined(__linux__) && defined(__aarch64__)
bool tern_processor_i8mm(void) { return getauxval(AT_HWCAP2) >> 13 & 1; } // HWCAP2_I8MM
#elif defined(__APPLE__)
bool tern_processor_i8mm(void) { // from M2 on
    int yes = 0;
    size_t size = sizeof yes;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &yes, &size, NULL, 0) == 0 && yes;
}
#else
bool tern_processor_i8mm(void) { return false; }
#endif

#if defined(__APPLE__)
bool tern_processor_name(char *out, size_t size) {
    return sysctlbyname("machdep.cpu.brand_string", out, &size, NULL, 0) == 0;
}
#else
bool tern_processor_name(char *out, size_t size) { return (void)out, (void)size, false; }
#endif
