// What fuzz targets share: files for readers that need a path, inputs of several parts, mutations
// that keep lengths and sizes right, and trying out an accepted model.
#ifndef TERN_FUZZ_SUPPORT_H
#define TERN_FUZZ_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tern.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
// Called once before the first input; what it allocates stays. Optional.
int LLVMFuzzerInitialize(int *argc, char ***argv);
// libFuzzer's own mutations, in a buffer of `room` bytes; a mutator of a target may call it.
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed);

// A finding: anything that must hold and does not.
void fuzz_require(bool ok);

// ---- Files -------------------------------------------------------------------------------------

// "FOLDER/name" in a folder of this process, which is removed at exit. Static: valid until eight
// calls later.
const char *fuzz_path(const char *name);
// Writes a file there and returns its path.
const char *fuzz_write(const char *name, const uint8_t *bytes, size_t n);

// ---- Inputs of several parts -------------------------------------------------------------------

// A part: a byte that says which file it is, its length as 32 bits, its bytes. A length that
// reaches beyond the end means the rest.
typedef struct fuzz_part {
    uint8_t kind;
    const uint8_t *bytes;
    size_t n;
} fuzz_part;
// The part at *at, which advances; false: there is no more.
bool fuzz_next_part(const uint8_t *input, size_t n, size_t *at, fuzz_part *part);
// Mutates one part and rewrites its length, so that the following parts stay intact. GGUF files are
// mutated as such.
size_t fuzz_mutate_parts(uint8_t *input, size_t n, size_t room, unsigned seed);
// Writes every part under the name of its kind and removes the files of missing parts.
void fuzz_write_parts(const uint8_t *input, size_t n, const char *const *names, size_t n_names);

// Mutates a GGUF file: half of the time one of its strings, adjusting its length and the padding
// before the data, else any bytes.
size_t fuzz_mutate_gguf(uint8_t *bytes, size_t n, size_t room, unsigned seed);

// ---- Using what was accepted -------------------------------------------------------------------

// Opens the model, generates a few tokens from text and from a chat, reports it as JSON, which must
// be valid. Anything may be refused, with a message.
void fuzz_use_model(const char *path);
// Encodes the text with an accepted tokenizer, decodes what comes of it, and exports it.
struct tern_tokenizer;
void fuzz_use_tokenizer(struct tern_tokenizer *t, const char *text, size_t n);
// What the servers say that MCP's client reaches from now on: messages, a line each (carriers.c).
void fuzz_server_says(const uint8_t *bytes, size_t n);
// Such a server's tools become an agent's, and each is called.
void fuzz_ask_server(const uint8_t *bytes, size_t n, bool is_http);
// Whether the text is a JSON value and nothing else.
bool fuzz_is_json(const char *text, size_t n);

#endif
