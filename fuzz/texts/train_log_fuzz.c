// Fuzzing of the image of a training log: whatever the numbers are, it is small and its
// coordinates are numbers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/support.h"
#include "tern_train.h"

enum { IMAGE_MAX = 1 << 22 };

// The same log twice, since readers usually get a single one.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *log = fuzz_write("log.jsonl", bytes, n), *svg = fuzz_path("image.svg");
    tern_error err = {0};
    tern_status status = tern_train_plot((const char *const[]){log, log}, 2, svg, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    if (status != TERN_OK) return 0;
    static char text[IMAGE_MAX];
    FILE *f = fopen(svg, "rb");
    fuzz_require(f != NULL);
    size_t n_text = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n_text] = 0;
    fuzz_require(n_text < sizeof text - 1 && strncmp(text, "<svg", 4) == 0);
    fuzz_require(!strstr(text, "'nan") && !strstr(text, "'-nan") && !strstr(text, "'inf") &&
                 !strstr(text, ",nan") && !strstr(text, ",inf") && !strstr(text, ">nan") &&
                 !strstr(text, ">inf") && !strstr(text, "'-inf") && !strstr(text, ",-inf"));
    return 0;
}
