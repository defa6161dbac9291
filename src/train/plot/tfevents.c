// A file of events that TensorBoard shows. The format is a record of protocol buffers, little
// enough to be written here: a library that has it (TensorFlow's) is larger than this project.
//
//   record = length (8 bytes), its masked CRC-32C, the event, its masked CRC-32C
//   event  = wall_time (1, double), step (2), file_version (3) | summary (5) | session_log (7)
//
// The first event names the version; the second one says that a session starts at a step, which
// makes TensorBoard drop what an earlier file has of that step and later.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"
#include "train/plot/plot.h"

struct tern_tfevents {
    char *path;
    int fd;
    tern_strbuf summary, event, record, part; // kept for their memory
};

// ---- Records -----------------------------------------------------------------------------------

// CRC-32C (Castagnoli), bit by bit: records are some dozens of bytes. Masked, as in LevelDB, so
// that the checksum of text with checksums in it is no special case.
static uint32_t masked_crc(const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void put_little(tern_strbuf *out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) tern_strbuf_putc(out, (char)(value >> 8 * i));
}

static tern_status write_record(tern_tfevents *e, tern_error *err) {
    tern_strbuf *r = &e->record;
    tern_strbuf_clear(r);
    put_little(r, e->event.len, 8);
    put_little(r, masked_crc(r->ptr, r->len), 4);
    tern_strbuf_append(r, e->event.ptr, e->event.len);
    put_little(r, masked_crc(e->event.ptr, e->event.len), 4);
    if (e->event.failed || r->failed) return tern_fail_memory(err, e->event.len);
    if (tern_fd_write(e->fd, r->ptr, r->len)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", e->path, strerror(errno));
}

// ---- Protocol buffers --------------------------------------------------------------------------

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(tern_strbuf *out, uint64_t value) {
    for (; value >= 128; value >>= 7) tern_strbuf_putc(out, (char)(value | 128));
    tern_strbuf_putc(out, (char)value);
}
static void put_key(tern_strbuf *out, int field, int type) {
    put_varint(out, (uint64_t)(field << 3 | type));
}
static void put_int(tern_strbuf *out, int field, uint64_t value) {
    put_key(out, field, VARINT);
    put_varint(out, value);
}
static void put_bytes(tern_strbuf *out, int field, const void *bytes, size_t n) {
    put_key(out, field, BYTES);
    put_varint(out, n);
    tern_strbuf_append(out, bytes, n);
}

static void begin_event(tern_tfevents *e, int64_t step) {
    double now = (double)time(NULL);
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    tern_strbuf_clear(&e->event);
    put_key(&e->event, 1, FIXED64);
    put_little(&e->event, bits, 8);
    put_int(&e->event, 2, (uint64_t)step);
}

// ---- Events ------------------------------------------------------------------------------------

void tern_tfevents_number(tern_tfevents *e, const char *tag, double value) {
    float number = (float)value;
    uint32_t bits;
    if (!e) return;
    memcpy(&bits, &number, sizeof bits);
    tern_strbuf_clear(&e->part);
    put_bytes(&e->part, 1, tag, strlen(tag));
    put_key(&e->part, 2, FIXED32); // simple_value
    put_little(&e->part, bits, 4);
    put_bytes(&e->summary, 1, e->part.ptr, e->part.len);
    e->summary.failed |= e->part.failed;
}

void tern_tfevents_text(tern_tfevents *e, const char *tag, const char *text) {
    // plugin_data {plugin_name: "text"}; dtype: DT_STRING, tensor_shape {dim {size: 1}}
    static const char plugin[] = "\x0a\x06\x0a\x04text",
                      tensor[] = "\x08\x07\x12\x04\x12\x02\x08\x01";
    tern_strbuf value = {0};
    if (!e) return;
    tern_strbuf_append(&value, tensor, sizeof tensor - 1);
    put_bytes(&value, 8, text, strlen(text)); // string_val
    tern_strbuf_clear(&e->part);
    put_bytes(&e->part, 1, tag, strlen(tag));
    put_bytes(&e->part, 8, value.ptr, value.len);
    put_bytes(&e->part, 9, plugin, sizeof plugin - 1);
    put_bytes(&e->summary, 1, e->part.ptr, e->part.len);
    e->summary.failed |= e->part.failed | value.failed;
    tern_strbuf_free(&value);
}

tern_status tern_tfevents_flush(tern_tfevents *e, int64_t step, tern_error *err) {
    if (!e || e->summary.len == 0) return TERN_OK;
    begin_event(e, step);
    put_bytes(&e->event, 5, e->summary.ptr, e->summary.len);
    e->event.failed |= e->summary.failed;
    tern_strbuf_clear(&e->summary);
    return write_record(e, err);
}

static tern_status open_file(tern_tfevents *e, const char *folder, int64_t step_first,
                             tern_error *err) {
    static const char version[] = "brain.Event:2", starts[] = "\x08\x01"; // status: START
    char name[80];
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.tern.%016llx", (long long)time(NULL),
             (unsigned long long)tern_random_seed());
    e->path = tern_path_join(folder, name);
    if (!e->path) return tern_fail_memory(err, strlen(folder) + sizeof name);
    TERN_TRY(tern_file_open_log(&e->fd, e->path, 0, false, err));
    begin_event(e, 0);
    put_bytes(&e->event, 3, version, sizeof version - 1);
    TERN_TRY(write_record(e, err));
    begin_event(e, step_first);
    put_bytes(&e->event, 7, starts, sizeof starts - 1);
    return write_record(e, err);
}

tern_status tern_tfevents_open(tern_tfevents **out, const char *folder, int64_t step_first,
                               tern_error *err) {
    tern_tfevents *e = tern_alloc(TERN_MEM_MISC, sizeof *e);
    *out = NULL;
    if (!e) return tern_fail_memory(err, sizeof *e);
    e->fd = -1;
    tern_status status = open_file(e, folder, step_first, err);
    if (status == TERN_OK)
        *out = e;
    else
        tern_tfevents_close(e);
    return status;
}

void tern_tfevents_close(tern_tfevents *e) {
    if (!e) return;
    if (e->fd >= 0) tern_fd_close(e->fd);
    tern_strbuf_free(&e->summary);
    tern_strbuf_free(&e->event);
    tern_strbuf_free(&e->record);
    tern_strbuf_free(&e->part);
    tern_free(e->path);
    tern_free(e);
}
