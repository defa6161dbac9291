// Fuzzing of checkpoints and of resuming from them. The input edits a checkpoint written by this
// very program, which knows best what one looks like:
//
// 1 byte: FIX: the checksums of the tensors are corrected; CUT: the last edit's place is the new
// length. Then edits: 4 bytes of place, 1 byte of length, as many bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/file_private.h"
#include "fuzz/support.h"
#include "input/tokenizer/tok_small.h"
#include "train/trainer.h"

enum { FIX = 1, CUT = 2, EDIT_HEAD = 5 };
static const char step_name[] = "step-00000001.gguf";
static tern_trainer *trainer;
static char folder[512];
static uint8_t *whole, *edited;
static size_t n_whole;

// A folder of shards with its tokenizer.
static void make_data(void) {
    static const char text[] = "the 12 the end, and the end of the end 1212 and so on to the end";
    tern_strbuf json = {0};
    tern_error err;
    small_byte_level(&json, SMALL_LLAMA3, false);
    fuzz_require(!json.failed);
    const char *tokenizer = fuzz_write("small.json", (const uint8_t *)json.ptr, json.len);
    const char *path = fuzz_write("text.txt", (const uint8_t *)text, sizeof text - 1);
    const tern_data_build_desc desc = {.source = {.paths = &path, .n_paths = 1},
                                       .tokenizer = tokenizer,
                                       .end = "<end>",
                                       .n_threads = 1};
    fuzz_require(tern_data_build(folder, &desc, NULL, &err) == TERN_OK);
    fuzz_path("tokenizer.json"), fuzz_path("manifest.json"), fuzz_path("train-00000.tern");
    tern_strbuf_free(&json);
}

static void read_whole(void) {
    FILE *f = fopen(fuzz_path(step_name), "rb");
    fuzz_require(f && fseek(f, 0, SEEK_END) == 0);
    n_whole = (size_t)ftell(f);
    whole = malloc(n_whole);
    edited = malloc(n_whole);
    rewind(f);
    fuzz_require(whole && edited && fread(whole, 1, n_whole, f) == n_whole);
    fclose(f);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    tern_error err;
    (void)argc, (void)argv;
    const char *path = fuzz_path(step_name);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    make_data();
    const tern_train_desc desc = {.data = folder,
                                  .out = folder,
                                  .n_layers = 1,
                                  .n_embd = 16,
                                  .n_heads = 1,
                                  .n_ff = 16,
                                  .seq_len = 16,
                                  .batch_tokens = 16,
                                  .micro_tokens = 16,
                                  .n_threads = 1,
                                  .seed = 1,
                                  .n_steps = 4};
    fuzz_require(tern_trainer_open(&trainer, &desc, &err) == TERN_OK &&
                 tern_trainer_init_weights(trainer, &err) == TERN_OK);
    trainer->step = 1;
    fuzz_require(tern_checkpoint_write(trainer, &err) == TERN_OK);
    read_whole();
    return 0;
}

// The tensors are in the order of their checksums.
static void fix_checksums(uint8_t *bytes, size_t n) {
    tern_file *f;
    tern_gguf_split split;
    tern_error err;
    if (tern_file_new(&f, "fix", &err) != TERN_OK) return;
    const tern_blob all = tern_blob_of(bytes, n);
    if (tern_gguf_parse(f, 0, &all, &split, &err) == TERN_OK &&
        tern_file_index_tensors(f, &err) == TERN_OK) {
        const tern_meta *sums = tern_file_meta(f, "tern.train.crc32");
        bool ok = sums && sums->type == TERN_META_ARRAY && sums->element_type == TERN_META_U32;
        for (size_t i = 0; ok && i < f->n_tensors && i < sums->n; i++) {
            uint32_t sum = tern_crc32(0, f->tensors[i].data.memory, (size_t)f->tensors[i].bytes);
            memcpy(bytes + ((const uint8_t *)sums->data - bytes) + i * 4, &sum, 4);
        }
    }
    tern_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_error err = {0};
    bool found;
    size_t place = n_whole, flags = n ? bytes[0] : 0;
    memcpy(edited, whole, n_whole);
    for (size_t at = 1; at + EDIT_HEAD <= n;) {
        uint32_t where;
        memcpy(&where, bytes + at, 4);
        size_t length = bytes[at + 4], left = n - at - EDIT_HEAD;
        place = where % n_whole;
        if (length > left) length = left;
        if (length > n_whole - place) length = n_whole - place;
        memcpy(edited + place, bytes + at + EDIT_HEAD, length);
        at += EDIT_HEAD + length;
    }
    size_t n_edited = flags & CUT ? place : n_whole;
    if (flags & FIX) fix_checksums(edited, n_edited);
    fuzz_write(step_name, edited, n_edited);
    tern_status status = tern_checkpoint_resume(trainer, &found, &err);
    fuzz_require(status == TERN_OK ? found : !found && err.message[0]);
    fuzz_require(status != TERN_OK || (trainer->step >= 0 && trainer->step <= INT64_MAX / 2));
    return 0;
}
