// A WebGPU library of the 2026 generation from npm's package `webgpu`, for tests: no package has
// one prebuilt for Linux, but that package's addon for Node contains Dawn, with its C functions as
// local symbols. Built as a shared library next to the addon (dawn.node), this exports the
// functions that wgpu_api.h names, as jumps to where the addon's symbol table says they are. x86-64
// and 64-bit ELF only. `make webgpu-newer` builds it.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/webgpu/device/wgpu_api.h"

// name, where a jump goes
#define SLOT(result, name, arguments)                                                              \
    __attribute__((visibility("hidden"))) void *slot_##name;                                       \
    __asm__(".text\n.globl wgpu" #name "\n.type wgpu" #name ",@function\n"                         \
            "wgpu" #name ": jmp *slot_" #name "(%rip)\n");
WGPU_FUNCTIONS(SLOT)
SLOT(, GetInstanceFeatures, )
SLOT(, DeviceForceLoss, )

static const struct {
    const char *name;
    void **slot;
} slots[] = {
#define ROW(result, name, arguments) {"wgpu" #name, &slot_##name},
    WGPU_FUNCTIONS(ROW) ROW(, GetInstanceFeatures, ) ROW(, DeviceForceLoss, )};
#define N_SLOTS (sizeof slots / sizeof *slots)

// The addon takes the addresses of these; nobody calls them here.
#define EXPORT __attribute__((visibility("default")))
EXPORT int napi_create_error(void);
EXPORT int napi_create_type_error(void);
int napi_create_error(void) { return 1; }
int napi_create_type_error(void) { return 1; }

static void stop(const char *what) {
    fprintf(stderr, "dawn_node: %s\n", what);
    abort();
}

typedef struct symbols {
    const Elf64_Sym *items;
    size_t n;
    const char *names;
} symbols;

static symbols read_symbols(const uint8_t *file) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type != SHT_SYMTAB) continue;
        return (symbols){(const Elf64_Sym *)(file + s->sh_offset), s->sh_size / sizeof(Elf64_Sym),
                         (const char *)file + sections[s->sh_link].sh_offset};
    }
    stop("dawn.node has no symbols");
    return (symbols){0};
}

static void *find(const symbols *all, char *base, const char *name) {
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].st_value && strcmp(all->names + all->items[i].st_name, name) == 0)
            return base + all->items[i].st_value;
    stop(name);
    return NULL;
}

__attribute__((constructor)) static void load(void) {
    Dl_info self;
    char path[4096];
    if (!dladdr((void *)(uintptr_t)&read_symbols, &self)) stop("where am I?");
    const char *slash = strrchr(self.dli_fname, '/');
    int n = slash ? (int)(slash - self.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/dawn.node", n, slash ? self.dli_fname : ".");
    dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD); // so that it finds the two above
    void *addon = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!addon) stop(dlerror());
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) stop(path);
    const uint8_t *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) stop(path);
    symbols all = read_symbols(file);
    char *known = dlsym(addon, "napi_register_module_v1");
    char *base = known - ((char *)find(&all, NULL, "napi_register_module_v1") - (char *)NULL);
    for (size_t i = 0; i < N_SLOTS; i++) *slots[i].slot = find(&all, base, slots[i].name);
    // Its functions call through a table that is empty until it is given Dawn's own.
    const void *(*procs)(void);
    void (*set)(const void *);
    *(void **)&procs = find(&all, base, "_ZN4dawn6native8GetProcsEv");
    *(void **)&set = find(&all, base, "dawnProcSetProcs");
    set(procs());
    munmap((void *)(uintptr_t)file, (size_t)st.st_size);
}
