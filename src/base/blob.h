// Bytes of a file, or of memory, that are accessible only while somebody holds them.
//
// On systems that map files, holding costs nothing and gives the mapping. On others, such as
// WebAssembly, a file stays on disk: holding a part of it allocates and reads, and releasing it
// frees the memory again. So tensors are accessed only through these functions, and a file of any
// size is never completely in memory unless somebody holds all of it.
//
// Any number of threads may hold and read.
#ifndef TERN_BASE_BLOB_H
#define TERN_BASE_BLOB_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

typedef struct tern_blob_file tern_blob_file; // open; owns the mapping, or the descriptor

typedef struct tern_blob {
    uint64_t n;
    const uint8_t *memory;          // the bytes; NULL: they have to be read
    const tern_blob_file *file;     // that they are of; NULL: only memory
    uint64_t at;                    // where they begin in the whole that they are a part of
    const struct tern_blob *joined; // or they are those of several blobs of `each` bytes
    uint64_t each;
    const struct tern_blob_maker *maker; // or they are computed whenever they are held
} tern_blob;

// Bytes that are in no file, and follow from those of one. Both functions may be called by any
// number of threads.
typedef struct tern_blob_maker {
    // Bytes [first, first + n) of the whole, to `to`. n > 0, and there are so many.
    tern_status (*make)(const struct tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                        tern_error *err);
    void (*drop)(const struct tern_blob_maker *m); // what they are made of is not needed soon
} tern_blob_maker;

// All bytes of a regular file. The blob and its parts are valid until the file is closed.
// missing_ok: a missing file gives TERN_OK and *file == NULL.
tern_status tern_blob_open(tern_blob_file **file, const char *path, bool missing_ok, tern_blob *all,
                           tern_error *err);
void tern_blob_close(tern_blob_file *file); // NULL is allowed

tern_blob tern_blob_of(const void *bytes, uint64_t n); // of memory, which stays the caller's
// The bytes of n blobs of `each` bytes, one after the other; the list stays the caller's. Holding
// bytes of more than one of them copies.
tern_blob tern_blob_join(const tern_blob *list, uint64_t n, uint64_t each);
tern_blob tern_blob_made(const tern_blob_maker *maker, uint64_t n); // the maker stays the caller's
// Bytes [first, first + n); what is beyond the end is left out.
tern_blob tern_blob_part(const tern_blob *b, uint64_t first, uint64_t n);

// A held blob; zeroed: none.
typedef struct tern_hold {
    const void *data; // [n]; at a multiple of 64 unless it is mapped
    void *owned;      // NULL: mapped, or the caller's memory
} tern_hold;
// Fails, with TERN_ERR_IO and a sentence that names the file and the place, if the bytes cannot be
// read, or if the file has been cut or changed since it was opened.
tern_status tern_blob_hold(const tern_blob *b, tern_hold *out, tern_error *err);
void tern_blob_release(tern_hold *hold); // and zeroes it; a zeroed one is allowed
// Copies bytes [first, first + n); fails as above, or if they are beyond the end.
tern_status tern_blob_read(const tern_blob *b, uint64_t first, uint64_t n, void *to,
                           tern_error *err);

// The bytes are not needed soon: a mapping of them need not stay resident. They stay valid.
void tern_blob_drop(const tern_blob *b);

// ---- For tests ---------------------------------------------------------------------------------

// Files opened from now on are read as where the system cannot map them.
void tern_blob_map_never(bool never);
// Lets the n-th read from now on (1 = the next) and all later ones fail; 0 turns it off.
void tern_blob_fail_read_at(uint64_t n);
uint64_t tern_blob_n_reads(void); // since the program began
uint64_t tern_blob_n_held(void);  // held and not released

#endif
