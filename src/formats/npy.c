// NPY, numpy's format of one array: a magic, a version, a header that is a Python dictionary of
// three entries, and the elements.
//
//     \x93NUMPY 1 0 <n: 16 bits> {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } <data>
//
// Versions 2 and 3 have 32 bits for n.
#include <float.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "formats/file_private.h"

// ---- Elements ----------------------------------------------------------------------------------

typedef struct npy_type {
    const char *descr;
    size_t bytes;
    tern_array_type type;
} npy_type;
enum { F2, F4, F8, I4, I8 };
static const npy_type types[] = {
    [F2] = {"<f2", 2, TERN_ARRAY_F32}, [F4] = {"<f4", 4, TERN_ARRAY_F32},
    [F8] = {"<f8", 8, TERN_ARRAY_F32}, [I4] = {"<i4", 4, TERN_ARRAY_I32},
    [I8] = {"<i8", 8, TERN_ARRAY_I32},
};
#define N_TYPES (sizeof types / sizeof *types)

static uint64_t little(const uint8_t *bytes, size_t n) {
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint64_t)bytes[i] << 8 * i;
    return x;
}

static float f32_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// One element; false: the target type cannot hold it.
static bool decode(const npy_type *t, const uint8_t *bytes, void *out) {
    uint64_t bits = little(bytes, t->bytes);
    float *f = out;
    int32_t *i = out;
    double d;
    int64_t wide;
    switch (t - types) {
    case F2: *f = tern_f16_to_f32((uint16_t)bits); return true;
    case F4: *f = f32_of((uint32_t)bits); return true;
    case F8:
        memcpy(&d, &bits, sizeof d);
        if (isfinite(d) && fabs(d) > (double)FLT_MAX) return false;
        *f = (float)d;
        return true;
    case I4: memcpy(i, &(uint32_t){(uint32_t)bits}, sizeof *i); return true;
    default:
        memcpy(&wide, &bits, sizeof wide);
        if (wide < INT32_MIN || wide > INT32_MAX) return false;
        *i = (int32_t)wide;
        return true;
    }
}

// ---- The header --------------------------------------------------------------------------------

typedef struct header {
    const char *at, *end;
    const char *path;
    const npy_type *type;
    tern_array *out;
} header;

static tern_status bad(const header *h, const char *what, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s: header: %s", h->path, what);
}

static void skip_blanks(header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
}

static bool take(header *h, char c) {
    skip_blanks(h);
    if (h->at == h->end || *h->at != c) return false;
    h->at++;
    return true;
}

// A word in quotes of either kind, without escapes.
static bool take_text(header *h, tern_str *out) {
    skip_blanks(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"')) return false;
    char quote = *h->at++;
    const char *begin = h->at;
    while (h->at < h->end && *h->at != quote) h->at++;
    if (h->at == h->end) return false;
    *out = (tern_str){begin, (size_t)(h->at++ - begin)};
    return true;
}

static bool is(tern_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.ptr, text, s.len) == 0;
}

static tern_status take_type(header *h, tern_error *err) {
    tern_str descr;
    if (!take_text(h, &descr))
        return bad(h, "descr is not a text: only arrays of plain numbers are read", err);
    for (size_t i = 0; i < N_TYPES; i++)
        if (is(descr, types[i].descr)) h->type = &types[i];
    if (h->type) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: elements of type '%.*s': expected <f2, <f4, <f8, <i4 or <i8", h->path,
                     (int)(descr.len < 32 ? descr.len : 32), descr.ptr);
}

static bool take_order(header *h, bool *fortran) {
    static const char *const words[] = {"False", "True"};
    skip_blanks(h);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(h->end - h->at) < n || memcmp(h->at, words[i], n) != 0) continue;
        h->at += n;
        *fortran = i;
        return true;
    }
    return false;
}

static bool take_number(header *h, int64_t *out) {
    *out = 0;
    skip_blanks(h);
    const char *begin = h->at;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++) {
        if (*out > (INT64_MAX - 9) / 10) return false;
        *out = *out * 10 + (*h->at - '0');
    }
    return h->at > begin;
}

static tern_status take_shape(header *h, tern_error *err) {
    tern_array *a = h->out;
    if (!take(h, '(')) return bad(h, "shape is not a tuple", err);
    while (!take(h, ')')) {
        if (a->n_dims == TERN_ARRAY_DIMS)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: more than %d dimensions", h->path,
                             TERN_ARRAY_DIMS);
        if (!take_number(h, &a->dims[a->n_dims++])) return bad(h, "shape: no whole number", err);
        if (take(h, ',')) continue;
        if (take(h, ')')) break;
        return bad(h, "shape does not end", err);
    }
    return TERN_OK;
}

static tern_status take_entry(header *h, unsigned *seen, bool *fortran, tern_error *err) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    tern_str key;
    unsigned k = 0;
    if (!take_text(h, &key) || !take(h, ':')) return bad(h, "it is not a dictionary", err);
    while (k < 3 && !is(key, keys[k])) k++;
    if (k == 3 || (*seen & 1u << k))
        return bad(h, k == 3 ? "an entry that NPY does not have" : "an entry is there twice", err);
    *seen |= 1u << k;
    if (k == 0) return take_type(h, err);
    if (k == 2) return take_shape(h, err);
    return take_order(h, fortran) ? TERN_OK
                                  : bad(h, "fortran_order is neither True nor False", err);
}

static tern_status read_header(header *h, tern_error *err) {
    unsigned seen = 0;
    bool fortran = false;
    if (!take(h, '{')) return bad(h, "it is not a dictionary", err);
    while (!take(h, '}')) {
        TERN_TRY(take_entry(h, &seen, &fortran, err));
        if (!take(h, ',')) {
            if (take(h, '}')) break;
            return bad(h, "it is not a dictionary", err);
        }
    }
    if (seen != 7) return bad(h, "descr, fortran_order or shape is missing", err);
    if (fortran && h->out->n_dims > 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the array lies column by column (fortran_order): expected rows",
                         h->path);
    skip_blanks(h);
    return h->at == h->end ? TERN_OK : bad(h, "something follows the dictionary", err);
}

// ---- Reading -----------------------------------------------------------------------------------

static tern_status find_header(header *h, const uint8_t *bytes, uint64_t n, uint64_t *data,
                               tern_error *err) {
    static const char magic[] = "\x93NUMPY";
    if (n < 10 || memcmp(bytes, magic, 6) != 0)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: no NPY file: it does not begin with \\x93NUMPY",
                         h->path);
    size_t wide = bytes[6] == 1 ? 2 : 4; // bytes of the header's length
    if (bytes[6] < 1 || bytes[6] > 3 || n < 8 + wide)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: NPY version %d: expected 1 to 3", h->path,
                         bytes[6]);
    uint64_t length = little(bytes + 8, wide);
    if (length > n - 8 - wide)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: the file ends within its header", h->path);
    h->at = (const char *)bytes + 8 + wide;
    h->end = h->at + length;
    *data = 8 + wide + length;
    return TERN_OK;
}

// The product of the dimensions; false: overflow.
static bool count(const tern_array *a, uint64_t *out) {
    bool fits = true;
    *out = 1;
    for (int32_t i = 0; i < a->n_dims; i++) // a 0 makes the product 0, whatever the others are
        if (a->dims[i] == 0) return *out = 0, true;
    for (int32_t i = 0; i < a->n_dims && fits; i++) {
        fits = a->dims[i] > 0 && *out <= (SIZE_MAX / 8) / (uint64_t)a->dims[i];
        if (fits) *out *= (uint64_t)a->dims[i];
    }
    return fits;
}

tern_status tern_npy_parse(tern_array *out, const char *path, const uint8_t *bytes, uint64_t n,
                           tern_error *err) {
    header h = {.path = path, .out = out};
    uint64_t data = 0, n_elements;
    const char *name = out->name;
    *out = (tern_array){.name = name};
    TERN_TRY(find_header(&h, bytes, n, &data, err));
    TERN_TRY(read_header(&h, err));
    out->type = h.type->type;
    if (!count(out, &n_elements) || n - data != n_elements * h.type->bytes)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: %llu bytes of data, which are not what its shape needs", path,
                         (unsigned long long)(n - data));
    float *elements = tern_alloc_array(TERN_MEM_MISC, (size_t)n_elements + 1, sizeof *elements);
    if (!elements) return tern_fail_memory(err, n_elements * sizeof *elements);
    for (uint64_t i = 0; i < n_elements; i++) {
        if (decode(h.type, bytes + data + i * h.type->bytes, &elements[i])) continue;
        tern_free(elements);
        return tern_fail(err, TERN_ERR_FORMAT, "%s: element %llu is more than %s can hold", path,
                         (unsigned long long)i,
                         out->type == TERN_ARRAY_I32 ? "an int32" : "a float32");
    }
    out->data = elements;
    return TERN_OK;
}

tern_status tern_array_read(tern_array *out, const char *path, tern_error *err) {
    tern_clear(err);
    tern_mapping m;
    TERN_NEED(out);
    TERN_NEED(path);
    TERN_TRY(tern_mapping_open(&m, path, false, err));
    tern_status status = tern_npy_parse(out, path, m.bytes, m.n, err);
    tern_mapping_close(&m);
    return status;
}

void tern_array_free(tern_array *a) {
    if (!a) return;
    tern_free(a->data);
    a->data = NULL;
}

// ---- Writing -----------------------------------------------------------------------------------

// Magic, version, length and dictionary: together a multiple of 64 bytes, ended by a line feed.
static void put_header(const tern_array *a, tern_strbuf *out) {
    tern_strbuf text = {0};
    tern_strbuf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                       types[a->type == TERN_ARRAY_F32 ? F4 : I4].descr);
    for (int32_t i = 0; i < a->n_dims; i++)
        tern_strbuf_printf(&text, "%s%lld%s", i ? ", " : "", (long long)a->dims[i],
                           a->n_dims == 1 ? "," : "");
    tern_strbuf_puts(&text, "), }");
    while ((10 + text.len + 1) % 64 != 0 && !text.failed) tern_strbuf_putc(&text, ' ');
    tern_strbuf_putc(&text, '\n');
    const char front[] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.len & 255), (char)(text.len >> 8)};
    tern_strbuf_append(out, front, sizeof front);
    tern_strbuf_append(out, tern_strbuf_text(&text), text.len);
    out->failed |= text.failed;
    tern_strbuf_free(&text);
}

// Elements of both types have 4 bytes; they are written in little-endian pieces.
static tern_status write_elements(tern_output *out, const tern_array *a, uint64_t n,
                                  tern_error *err) {
    uint8_t piece[4096];
    const uint8_t *data = a->data;
    for (uint64_t i = 0; i < n;) {
        size_t filled = 0;
        for (; i < n && filled < sizeof piece; i++, filled += 4) {
            uint32_t bits;
            memcpy(&bits, data + 4 * i, sizeof bits);
            for (size_t k = 0; k < 4; k++) piece[filled + k] = (uint8_t)(bits >> 8 * k);
        }
        TERN_TRY(tern_output_write(out, piece, filled, err));
    }
    return TERN_OK;
}

static tern_status check_array(const tern_array *a, uint64_t *n, tern_error *err) {
    bool whole = a->n_dims >= 0 && a->n_dims <= TERN_ARRAY_DIMS && count(a, n);
    if (whole && (a->data || *n == 0)) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "an array of %d dimensions that has no data",
                     (int)a->n_dims);
}

tern_status tern_array_write(const tern_array *a, const char *path, tern_error *err) {
    tern_clear(err);
    tern_output *out = NULL;
    tern_strbuf front = {0};
    uint64_t n = 0;
    TERN_NEED(a);
    TERN_NEED(path);
    TERN_TRY(check_array(a, &n, err));
    put_header(a, &front);
    tern_status status = front.failed ? tern_fail_memory(err, front.len) : TERN_OK;
    if (status == TERN_OK) status = tern_output_open(&out, path, err);
    if (status == TERN_OK)
        status = tern_output_write(out, tern_strbuf_text(&front), front.len, err);
    if (status == TERN_OK) status = write_elements(out, a, n, err);
    if (status == TERN_OK) status = tern_output_finish(out, err);
    tern_output_close(out);
    tern_strbuf_free(&front);
    return status;
}
