// Rewrites a WebAssembly module to avoid one of the faults of WebKit of 2025 (docs/browser.md).
//
//   wasm_loops FILE      rewrites the file and says how many functions were changed
//   wasm_loops -c FILE   only counts the functions that would be
//
// That WebKit begins a function in its interpreter, and moves to compiled code in the middle of a
// loop that runs long. Numbers in floating-point registers did not survive the move: their bits
// were read as an integer, which was then converted (WebKit pull request 52960, October 2025). It
// does not interpret functions that have SIMD instructions. So each function that has a loop,
// floats and no such instruction gets one, at its beginning, whose result is dropped.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *why) {
    fprintf(stderr, "wasm_loops: %s\n", why);
    exit(1);
}

typedef struct bytes {
    uint8_t *at;
    size_t n, capacity;
} bytes;

static void put(bytes *b, const void *from, size_t n) {
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->at = realloc(b->at, b->capacity);
        if (!b->at) fail("out of memory");
    }
    if (n) memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void put_leb(bytes *b, uint64_t v) {
    do {
        uint8_t byte = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        put(b, &byte, 1);
    } while (v >>= 7);
}

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint8_t byte_of(reader *r) {
    if (r->at == r->end) fail("the module ends too early");
    return *r->at++;
}

// An unsigned number; of signed ones it takes the bytes, too.
static uint64_t leb(reader *r) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint8_t b = byte_of(r);
        if (shift < 64) v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return v;
    }
    fail("a number is too long");
    return 0;
}

static void skip(reader *r, uint64_t n) {
    if ((uint64_t)(r->end - r->at) < n) fail("the module ends too early");
    r->at += n;
}

static void skip_lebs(reader *r, uint64_t n) {
    while (n--) leb(r);
}

// ---- Instructions ------------------------------------------------------------------------------

typedef struct traits {
    bool has_loop, has_float, has_simd;
} traits;

// The operands of an instruction of two bytes (0xfc: of memory and tables; 0xfe: atomic).
static void skip_prefixed(reader *r, uint8_t prefix) {
    uint64_t op = leb(r);
    if (prefix == 0xfe) {
        skip_lebs(r, op == 3 ? 1 : 2);
        return;
    }
    if (op > 17) fail("an unknown instruction");
    static const uint8_t n_operands[18] = {[8] = 2, 1, 2, 1, 2, 1, 2, 1, 1, 1};
    skip_lebs(r, n_operands[op]);
}

// Bytes as https://webassembly.github.io/spec/core/binary/instructions.html has them.
static void skip_operands(reader *r, uint8_t op) {
    if (op >= 0x28 && op <= 0x3e)
        skip_lebs(r, 2); // alignment, offset
    else if (op == 0x43)
        skip(r, 4);
    else if (op == 0x44)
        skip(r, 8);
    else if (op == 0x0e)
        skip_lebs(r, leb(r) + 1);
    else if (op == 0x1c)
        skip(r, leb(r));
    else if (op == 0x11 || op == 0x13)
        skip_lebs(r, 2);
    else if ((op >= 0x02 && op <= 0x04) || op == 0x0c || op == 0x0d || op == 0x10 || op == 0x12 ||
             (op >= 0x20 && op <= 0x26) || (op >= 0x3f && op <= 0x42) || op == 0xd0 || op == 0xd2)
        leb(r);
    else if (op == 0xfc || op == 0xfe)
        skip_prefixed(r, op);
    else if (op > 0xd2 || (op > 0x04 && op < 0x0b && op != 0x05))
        fail("an unknown instruction");
}

static traits traits_of(reader r) {
    traits t = {0};
    while (r.at < r.end && !t.has_simd) {
        uint8_t op = byte_of(&r);
        t.has_simd = op == 0xfd;
        t.has_loop |= op == 0x03;
        // Loads, constants, arithmetic; what is converted is one of these or a local.
        t.has_float |= op == 0x2a || op == 0x2b || op == 0x43 || op == 0x44 ||
                       (op >= 0x8b && op <= 0xa6) || (op >= 0xb2 && op <= 0xbb);
        if (!t.has_simd) skip_operands(&r, op);
    }
    return t;
}

// ---- The module --------------------------------------------------------------------------------

// A function: its locals, then its instructions.
static bool put_function(bytes *out, reader f) {
    static const uint8_t mark[] = {0x41, 0x00, 0xfd, 0x0f, 0x1a}; // i8x16.splat of 0, dropped
    const uint8_t *begin = f.at;
    for (uint64_t n = leb(&f); n > 0; n--) {
        leb(&f);
        byte_of(&f);
    }
    traits t = traits_of(f);
    bool marks = t.has_loop && t.has_float && !t.has_simd;
    put_leb(out, (uint64_t)(f.end - begin) + (marks ? sizeof mark : 0));
    put(out, begin, (size_t)(f.at - begin));
    if (marks) put(out, mark, sizeof mark);
    put(out, f.at, (size_t)(f.end - f.at));
    return marks;
}

static size_t put_functions(bytes *out, reader code) {
    size_t n_marked = 0;
    uint64_t n = leb(&code);
    put_leb(out, n);
    for (; n > 0; n--) {
        uint64_t size = leb(&code);
        reader f = {code.at, code.at};
        skip(&code, size);
        f.end = code.at;
        n_marked += put_function(out, f);
    }
    return n_marked;
}

static size_t put_module(bytes *out, reader r) {
    size_t n_marked = 0;
    if (r.end - r.at < 8 || memcmp(r.at, "\0asm\1\0\0\0", 8) != 0) fail("this is no module");
    put(out, r.at, 8);
    skip(&r, 8);
    while (r.at < r.end) {
        uint8_t id = byte_of(&r);
        uint64_t size = leb(&r);
        reader section = {r.at, r.at};
        skip(&r, size);
        section.end = r.at;
        bytes code = {0};
        if (id == 10)
            n_marked = put_functions(&code, section);
        else
            put(&code, section.at, (size_t)size);
        put(out, &id, 1);
        put_leb(out, code.n);
        put(out, code.at, code.n);
        free(code.at);
    }
    return n_marked;
}

static bytes read_all(const char *path) {
    bytes b = {0};
    char some[65536];
    FILE *f = fopen(path, "rb");
    if (!f) fail("the file cannot be opened");
    for (size_t n; (n = fread(some, 1, sizeof some, f)) > 0;) put(&b, some, n);
    fclose(f);
    return b;
}

int main(int argc, char **argv) {
    bool only_counts = argc == 3 && strcmp(argv[1], "-c") == 0;
    if (argc != 2 && !only_counts) fail("usage: wasm_loops [-c] FILE");
    bytes in = read_all(argv[argc - 1]), out = {0};
    size_t n = put_module(&out, (reader){in.at, in.at + in.n});
    if (!only_counts) {
        FILE *f = fopen(argv[1], "wb");
        if (!f || fwrite(out.at, 1, out.n, f) != out.n || fclose(f) != 0)
            fail("the file cannot be written");
    }
    printf("%zu\n", n);
    free(in.at);
    free(out.at);
    return 0;
}
