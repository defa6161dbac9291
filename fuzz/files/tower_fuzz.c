// Fuzzing of what a GGUF sees with, a file of its own (mmproj): beside each of two language models
// that are always the same, it is refused with a reason or makes rows of a small image.
#include "fuzz/support.h"
#include "tern_image.h"
#include "tern_tools.h"

static const char *const sees[] = {"tests/oracles/qwen3vl_sees", "tests/oracles/lfm2vl_sees"};
static const char *const texts[] = {"text.gguf", "text2.gguf"};
static tern_image image;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    tern_error err = {0};
    const tern_convert_desc desc = {.n_threads = 1};
    fuzz_path("mmproj-text.gguf"); // are written, too
    fuzz_path("mmproj-text2.gguf");
    for (int i = 0; i < 2; i++)
        fuzz_require(tern_convert(sees[i], fuzz_path(texts[i]), &desc, &err) == TERN_OK);
    fuzz_require(tern_image_create(&image, 40, 30, &err) == TERN_OK);
    for (int i = 0; i < 40 * 30 * 3; i++) image.rgb[i] = (uint8_t)(i * 7);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_gguf(bytes, n, room, seed);
}

static void look(const char *text, const char *mmproj) {
    const tern_model_desc desc = {.n_threads = 1, .mmproj = mmproj};
    const tern_image_tokens_params few = {.n_pixels_max = 256}; // patches of a pixel each, at most
    tern_error err = {0};
    tern_model *m;
    tern_image_tokens *tokens = NULL;
    size_t n_rows = 0;
    if (tern_model_open(&m, fuzz_path(text), &desc, &err) != TERN_OK) {
        fuzz_require(err.message[0]);
        return;
    }
    if (tern_image_tokens_open(&tokens, m, &image, 1, &few, &err) == TERN_OK)
        fuzz_require(tern_image_tokens_ids(tokens, &n_rows) && n_rows > 0);
    else
        fuzz_require(err.message[0]);
    tern_image_tokens_close(tokens);
    tern_model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *mmproj = fuzz_write("tower.gguf", bytes, n);
    for (int i = 0; i < 2; i++) look(texts[i], mmproj);
    return 0;
}
