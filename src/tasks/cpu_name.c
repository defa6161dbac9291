// See cpu_name.h. Linux gives x86 processors by name, ARM processors by the numbers of their MIDR
// register.
#include "tasks/cpu_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    int maker, number;
    const char *name;
} part;

static const part parts[] = {
    {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd04, "Cortex-A35"},   {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},   {0x41, 0xd08, "Cortex-A72"},   {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},   {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse N1"},
    {0x41, 0xd0d, "Cortex-A77"},   {0x41, 0xd0e, "Cortex-A76AE"}, {0x41, 0xd40, "Neoverse V1"},
    {0x41, 0xd41, "Cortex-A78"},   {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd44, "Cortex-X1"},
    {0x41, 0xd46, "Cortex-A510"},  {0x41, 0xd47, "Cortex-A710"},  {0x41, 0xd48, "Cortex-X2"},
    {0x41, 0xd49, "Neoverse N2"},  {0x41, 0xd4b, "Cortex-A78C"},  {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},    {0x41, 0xd4f, "Neoverse V2"},  {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"},  {0x41, 0xd82, "Cortex-X4"},    {0x41, 0xd84, "Neoverse V3"},
    {0x41, 0xd85, "Cortex-X925"},  {0x41, 0xd87, "Cortex-A725"},  {0x41, 0xd8e, "Neoverse N3"},
    {0x48, 0xd01, "Kunpeng 920"},  {0x4e, 0x004, "Carmel"},       {0x51, 0x001, "Oryon"},
    {0x51, 0x800, "Kryo 260"},     {0x51, 0x802, "Kryo 385"},     {0x51, 0x804, "Kryo 485"},
    {0x61, 0x022, "Apple M1"},     {0x61, 0x023, "Apple M1"},     {0x61, 0x024, "Apple M1 Pro"},
    {0x61, 0x025, "Apple M1 Pro"}, {0x61, 0x028, "Apple M1 Max"}, {0x61, 0x029, "Apple M1 Max"},
    {0x61, 0x032, "Apple M2"},     {0x61, 0x033, "Apple M2"},     {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1A"},
};

static void add(char *out, size_t size, const char *name) {
    size_t n = strlen(out);
    if (!strstr(out, name)) snprintf(out + n, size - n, "%s%s", n ? " and " : "", name);
}

static void add_part(char *out, size_t size, int maker, int number) {
    char name[40];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].maker == maker && parts[i].number == number) {
            add(out, size, parts[i].name);
            return;
        }
    snprintf(name, sizeof name, "ARM 0x%02x/0x%03x", (unsigned)maker & 0xff,
             (unsigned)number & 0xfff);
    add(out, size, name);
}

// The value of a line "key   : value".
static const char *value_of(const char *line, const char *key, int *n) {
    size_t len = strlen(key);
    if (strncmp(line, key, len) != 0) return NULL;
    line += len;
    line += strspn(line, " \t");
    if (*line != ':') return NULL;
    line++;
    line += strspn(line, " \t");
    *n = (int)strcspn(line, "\n");
    return *n ? line : NULL;
}

void tern_cpu_name(const char *cpuinfo, char *out, size_t size) {
    static const char *const names[] = {"model name", "Model Name", "cpu model", "uarch", "cpu"};
    const char *value;
    int n, maker = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *at = cpuinfo; at; at = (at = strchr(at, '\n')) ? at + 1 : NULL) {
            // 32-bit ARM's is "ARMv7 Processor rev 4 (v7l)" for all of them.
            if (!(value = value_of(at, names[i], &n)) || !strncmp(value, "ARMv", 4)) continue;
            snprintf(out, size, "%.*s", n, value);
            return;
        }
    *out = 0;
    for (const char *at = cpuinfo; at; at = (at = strchr(at, '\n')) ? at + 1 : NULL) {
        if ((value = value_of(at, "CPU implementer", &n))) maker = (int)strtol(value, NULL, 0);
        if ((value = value_of(at, "CPU part", &n)) && maker >= 0)
            add_part(out, size, maker, (int)strtol(value, NULL, 0));
    }
    if (!*out) snprintf(out, size, "unknown");
}
