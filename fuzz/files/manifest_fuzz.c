// Fuzzing of the manifest of a folder of shards, next to a shard that it may list: listed shards
// can be opened.
#include <stdio.h>
#include <string.h>
#include "formats/shard/shard.h"
#include "fuzz/support.h"

static char folder[512];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    tern_shard_writer *w;
    tern_error err;
    (void)argc, (void)argv;
    const char *path = fuzz_path("train-00000.tern");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    fuzz_require(tern_shard_writer_open(&w, path, &(tern_shard_desc){.n_vocab = 9, .end_id = 0},
                                        &err) == TERN_OK &&
                 tern_shard_write(w, (const int32_t[]){1, 2, 3, 0}, 4, &err) == TERN_OK &&
                 tern_shard_writer_finish(w, &err) == TERN_OK);
    tern_shard_writer_free(w);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char *const splits[] = {"train", "valid"};
    fuzz_write("manifest.json", bytes, n);
    for (int i = 0; i < 2; i++) {
        tern_token_set *set = NULL;
        tern_token_set_desc desc = {.seq_len = 2};
        tern_error err = {0};
        int32_t ids[3];
        tern_status status = tern_token_set_open_folder(&set, folder, splits[i], &desc, &err);
        fuzz_require(status == TERN_OK ? !set || i == 0 : !set && err.message[0]);
        if (set) tern_token_set_sequence(set, 0, 0, ids, NULL, &err);
        tern_token_set_close(set);
    }
    return 0;
}
