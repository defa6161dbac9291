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
    const tern_blob_file *file;     // the file that has them; NULL: only memory
    uint64_t at;                    // their offset in the whole blob
    const struct tern_blob *joined; // or: several blobs of `each` bytes, concatenated
    uint64_t each;
    const struct tern_blob_maker *maker; // or: computes them whenever they are held
} tern_blob;

// Bytes computed from those of a file. Any number of threads may call both functions.
typedef struct tern_blob_maker {
    // Writes bytes [first, first + n) of the whole to `to`. n > 0, and the range is within the
    // whole.
    tern_status (*make)(const struct tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                        tern_error *err);
    void (*drop)(const struct tern_blob_maker *m); // their source is not needed soon
} tern_blob_maker;

// All bytes of a regular file. The blob and its parts are valid until the file is closed.
// missing_ok: a missing file gives TERN_OK and *file == NULL.
tern_status tern_blob_open(tern_blob_file **file, const char *path, bool missing_ok, tern_blob *all,
                           tern_error *err);
void tern_blob_close(tern_blob_file *file); // NULL is allowed

tern_blob tern_blob_of(const void *bytes, uint64_t n); // of memory, which stays the caller's
// The bytes of n blobs of `each` bytes, concatenated; the list stays the caller's. Holding bytes of
// more than one of them makes a copy.
tern_blob tern_blob_join(const tern_blob *list, uint64_t n, uint64_t each);
tern_blob tern_blob_made(const tern_blob_maker *maker, uint64_t n); // the maker stays the caller's
// Bytes [first, first + n); bytes beyond the end are left out.
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

// Files opened from now on are read, as on systems that cannot map them.
void tern_blob_map_never(bool never);
// Makes the n-th read from now on (1 = the next) and all later ones fail; 0 turns it off.
void tern_blob_fail_read_at(uint64_t n);
uint64_t tern_blob_n_reads(void); // since the program began
uint64_t tern_blob_n_held(void);  // held and not released

#endif
