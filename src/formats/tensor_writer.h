// Shared by the two writers: files that appear only when complete, and a list of declared tensors
// whose data is streamed in order.
//
// Life cycle of a writer: declare tensors, write their data in pieces, finish. The first write
// fixes the part (file) of each tensor, since a header precedes the data and must describe all of
// it. The container defines a part's header.
#ifndef TERN_FORMATS_TENSOR_WRITER_H
#define TERN_FORMATS_TENSOR_WRITER_H

#include "formats/file_private.h"

// ---- Tensors declared, then streamed -----------------------------------------------------------

typedef struct tern_planned {
    const char *name;
    tern_dtype type;
    int n_dims;
    uint64_t ne[5]; // as declared, unused ones 1; GGUF has four of them
    uint64_t bytes;
    size_t part;
} tern_planned;

typedef struct tern_writer tern_writer;
struct tern_writer {
    char *path;
    uint64_t split_bytes, alignment;
    tern_arena pool;
    tern_planned *tensors;
    size_t n_tensors, capacity, n_parts;
    size_t at;          // tensor being written
    uint64_t n_written; // bytes of it written
    bool planned, part_open;
    tern_error failed;  // of an earlier call; later ones fail, too
    tern_out_set out;   // open from the first part on, or before
    tern_out_file file; // the part being written
    // Begins the part's file and writes everything that comes before the data.
    tern_status (*begin_part)(tern_writer *w, size_t part, tern_error *err);
};

tern_status tern_writer_init(tern_writer *w, const char *path, uint64_t split_bytes,
                             uint64_t alignment, tern_error *err);
void tern_writer_deinit(tern_writer *w);
tern_status tern_writer_declare(tern_writer *w, const char *name, tern_dtype type, int n_dims,
                                const uint64_t *ne, uint64_t n_row);
tern_status tern_writer_write(tern_writer *w, const void *bytes, uint64_t n, tern_error *err);
// Checks that all data was written and ends the last part; begins the file if there were no
// tensors.
tern_status tern_writer_end(tern_writer *w, tern_error *err);
// Gives the files their names; see tern_out_commit. The writer accepts nothing after that.
tern_status tern_writer_commit(tern_writer *w, const char *last, tern_error *err);

#endif
