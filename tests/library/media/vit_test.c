// Models of images: scores and vectors of references, from every kind of file, in any company.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "runtime/runtime.h"
#include "tern_image.h"
#include "tern_tools.h"

#define OWN    "tests/oracles/"
#define REAL   "models/vit_tiny_patch16_224"
#define LABELS 5
#define WIDTH  24

static double distance(const float *a, const float *b, size_t n) {
    double d = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(d / all);
}

static const void *golden(const tern_file *file, const char *name) {
    const tern_tensor *t = tern_file_tensor(file, name);
    CHECK_MSG(t, "the golden file has no %s", name);
    return t ? test_bytes(&t->data) : NULL;
}

// ---- Small ones, of numpy ----------------------------------------------------------------------

static void check_model(const char *path, bool gpu, const tern_file *file, double bound) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_classify_hit hits[2 * LABELS];
    float scores[2 * LABELS], vectors[2 * WIDTH];
    tern_image images[2];
    if (gpu)
        m = gpu_open(path, 0);
    else
        CHECK_MSG(tern_model_open(&m, path, NULL, &err) == TERN_OK, "%s", err.message);
    if (!m) return;
    // Another image beside it makes no difference.
    REQUIRE_OK(tern_image_create(&images[0], 11, 19, &err), err);
    REQUIRE_OK(tern_image_create(&images[1], 37, 29, &err), err);
    memcpy(images[1].rgb, golden(file, "image"), 37 * 29 * 3);
    const tern_classify_params params = {.n_hits = LABELS, .scores = scores};
    CHECK_MSG(tern_classify(m, images, 2, &params, hits, &err) == TERN_OK, "%s: %s", path,
              err.message);
    double d = distance(scores + LABELS, golden(file, "scores"), LABELS), sum = 0;
    CHECK_MSG(d < bound, "%s: scores are %g off", path, d);
    for (int i = 0; i < LABELS; i++) {
        const tern_classify_hit *hit = &hits[LABELS + i];
        CHECK(i == 0 || hit->score <= hit[-1].score);
        CHECK(hit->score == scores[LABELS + hit->label_id]);
        CHECK(hit->label == tern_model_label(m, hit->label_id));
        sum += (double)hit->probability;
    }
    CHECK(fabs(sum - 1) < 1e-6);
    CHECK_MSG(tern_embed_images(m, images, 2, vectors, &err) == TERN_OK, "%s", err.message);
    d = distance(vectors + WIDTH, golden(file, "embedding"), WIDTH);
    CHECK_MSG(d < bound, "%s: the vector is %g off", path, d);
    float alone[LABELS];
    const tern_classify_params one = {.n_hits = 1, .scores = alone};
    CHECK(tern_classify(m, images + 1, 1, &one, hits, &err) == TERN_OK);
    CHECK(memcmp(alone, scores + LABELS, sizeof alone) == 0);
    tern_image_close(&images[0]);
    tern_image_close(&images[1]);
    tern_model_close(m);
}

// A folder, a GGUF of it, and a folder of that.
static void check_case(const char *name, bool gpu, double bound) {
    char folder[64], path[96], gguf[512], back[512];
    tern_error err = {0};
    tern_file *file;
    snprintf(folder, sizeof folder, OWN "%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    snprintf(gguf, sizeof gguf, "%s.gguf", test_tmp(name));
    snprintf(back, sizeof back, "%s.folder", test_tmp(name));
    REQUIRE_OK(tern_file_open(&file, path, &err), err);
    check_model(folder, gpu, file, bound);
    REQUIRE_OK(tern_convert(folder, gguf, NULL, &err), err);
    check_model(gguf, gpu, file, bound);
    REQUIRE_OK(tern_convert(gguf, back, NULL, &err), err);
    check_model(back, gpu, file, bound);
    tern_file_close(file);
}

// Seen to fail: with the first row's position left as it is, with the middle cut out a pixel off,
// with the filters exchanged, and with queries and keys exchanged in what timm has as one.
TEST(vit_has_the_references_scores) {
    check_case("vit", false, 2e-6);
    check_case("vit_timm", false, 2e-6);
}

TEST(webgpu_vit_has_the_references_scores) {
    check_case("vit", true, 1e-4);
    check_case("vit_timm", true, 1e-4);
}

TEST(vit_labels_have_their_names) {
    tern_error err = {0};
    tern_model *m;
    tern_media_info info;
    REQUIRE_OK(tern_model_open(&m, OWN "vit", NULL, &err), err);
    tern_model_get_media_info(m, &info);
    CHECK(info.image_width == 16 && info.image_height == 16 && info.patch == 4);
    CHECK(info.n_labels == LABELS && info.n_dims == WIDTH);
    CHECK(strcmp(tern_model_label(m, 3), "thing 3") == 0);
    CHECK(!tern_model_label(m, LABELS) && !tern_model_label(m, -1) && !tern_model_label(NULL, 0));
    tern_model_close(m);
    REQUIRE_OK(tern_model_open(&m, OWN "vit_timm", NULL, &err), err);
    CHECK(strcmp(tern_model_label(m, 3), "label 3") == 0);
    tern_model_close(m);
    REQUIRE_OK(tern_model_open(&m, OWN "bert", NULL, &err), err);
    tern_model_get_media_info(m, &info);
    CHECK(info.image_width == 0 && info.n_labels == 0 && !tern_model_label(m, 0));
    tern_model_close(m);
}

static bool stop(void *user, const char *what, double fraction) {
    (void)user, (void)what, (void)fraction;
    return false;
}

TEST(vit_refuses_what_is_no_image_or_no_model_of_them) {
    tern_error err = {0};
    tern_model *m, *texts;
    tern_classify_hit hits[LABELS];
    float vector[WIDTH];
    tern_image p, thin, none = {0};
    REQUIRE_OK(tern_model_open(&m, OWN "vit", NULL, &err), err);
    REQUIRE_OK(tern_model_open(&texts, OWN "bert", NULL, &err), err);
    REQUIRE_OK(tern_image_create(&p, 9, 9, &err), err);
    REQUIRE_OK(tern_image_create(&thin, 1, 900, &err), err);
    CHECK(tern_classify(texts, &p, 1, NULL, hits, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "reads no images"));
    CHECK(tern_embed_images(texts, &p, 1, vector, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(tern_classify(m, &thin, 1, NULL, hits, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "image 1: 1 x 900 pixels"));
    CHECK(tern_classify(m, &none, 1, NULL, hits, &err) == TERN_ERR_ARGUMENT);
    const tern_classify_params many = {.n_hits = LABELS + 1}, stops = {.on_progress = stop};
    CHECK(tern_classify(m, &p, 1, &many, hits, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_classify(m, &p, 1, &stops, hits, &err) == TERN_ERR_CANCELLED);
    const tern_embed_text text = {.text = "hello", .n_bytes = 5};
    CHECK(tern_embed(m, &text, 1, NULL, vector, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "of images and of no texts"));
    CHECK(tern_classify(m, NULL, 0, NULL, NULL, &err) == TERN_OK);
    tern_image_close(&p);
    tern_image_close(&thin);
    tern_model_close(texts);
    tern_model_close(m);
}

TEST(vit_survives_failing_allocations) {
    tern_error err = {0};
    tern_model *m;
    tern_image p;
    tern_classify_hit hits[LABELS];
    bool done = false;
    const tern_model_desc desc = {.n_threads = 1};
    REQUIRE_OK(tern_model_open(&m, OWN "vit", &desc, &err), err);
    REQUIRE_OK(tern_image_create(&p, 21, 19, &err), err);
    for (uint64_t n = 1; !done && n < 1000; n++) {
        tern_mem_fail_at(n);
        tern_status status = tern_classify(m, &p, 1, NULL, hits, &err);
        tern_mem_fail_at(0);
        done = status == TERN_OK;
        CHECK_MSG(done || status == TERN_ERR_MEMORY, "%s", err.message);
    }
    CHECK(done);
    tern_image_close(&p);
    tern_model_close(m);
}

// ---- A real one, of timm -----------------------------------------------------------------------

// The reference's own pixels, [3, 224, 224], as the model's rows.
static void squares(const float *pixels, float *rows) {
    memset(rows, 0, 768 * sizeof *rows);
    for (int i = 0; i < 196; i++)
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < 16; y++)
                memcpy(rows + 768 * (i + 1) + 256 * c + 16 * y,
                       pixels + 50176 * c + 224 * (i / 14 * 16 + y) + i % 14 * 16,
                       16 * sizeof *rows);
}

static void check_real_scores(tern_model *m, const char *image, const float *want) {
    char name[192];
    size_t n;
    tern_error err = {0};
    snprintf(name, sizeof name, "golden/vit_tiny/%s.input_3x224x224.f32", image);
    const char *path = test_data(name);
    REQUIRE(path);
    char *pixels = test_read(path, &n);
    REQUIRE(pixels && n == 3 * 224 * 224 * sizeof(float));
    float *rows = calloc(197 * 768, sizeof *rows);
    int32_t ids[197];
    for (int32_t i = 0; i < 197; i++) ids[i] = i;
    squares((const float *)(const void *)pixels, rows);
    tern_array in[] = {
        {.name = "ids", .type = TERN_ARRAY_I32, .n_dims = 1, .dims = {197}, .data = ids},
        {.name = "patches", .n_dims = 2, .dims = {197, 768}, .data = rows}};
    tern_array out = {.name = "scores"};
    const tern_compute_desc compute = {
        .inputs = in, .n_inputs = 2, .outputs = &out, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &compute, &err) == TERN_OK, "%s", err.message);
    if (out.data) {
        double d = distance(out.data, want, 1000);
        CHECK_MSG(d < 5e-6, "%s: scores are %g off", image, d);
    }
    tern_array_free(&out);
    free(rows);
    free(pixels);
}

// The reference rounds the longer edge where torchvision, whose sizes timm uses, cuts it off, and
// cuts out the middle a pixel earlier: where both agree scores do, elsewhere labels.
TEST(vit_tiny_sees_what_its_reference_sees) {
    static const struct {
        const char *name;
        bool same_pixels, has_input;
    } images[17] = {{"n01514668_10054", true, true},   {"n01687978_10071", true, false},
                    {"n01735189_11267", false, false}, {"n01847000_10087", true, true},
                    {"n01855032_1046", true, false},   {"n02018795_102", true, false},
                    {"n02025239_1005", false, false},  {"n02113978_10037", true, false},
                    {"n02125311_10473", true, true},   {"n02127052_10040", true, false},
                    {"n02231487_1002", false, false},  {"n02412080_10216", true, false},
                    {"n02493509_10045", false, false}, {"n03032252_101298", false, false},
                    {"n03062245_1030", false, false},  {"n03240683_10240", true, false},
                    {"n03764736_10075", false, false}};
    const char *model = test_data(REAL), *path = test_data("golden/vit_tiny/logits_17x1000.f32");
    tern_error err = {0};
    tern_model *m;
    size_t n;
    if (!model || !path) return;
    char *bytes = test_read(path, &n);
    const float *logits = (const float *)(const void *)bytes;
    REQUIRE(bytes && n == 17 * 1000 * sizeof(float));
    REQUIRE_OK(tern_model_open(&m, model, NULL, &err), err);
    for (int i = 0; i < 17; i++) {
        char name[128];
        float scores[1000];
        tern_classify_hit hit;
        tern_image p;
        const float *want = logits + 1000 * i;
        int best = 0;
        for (int k = 1; k < 1000; k++) best = want[k] > want[best] ? k : best;
        snprintf(name, sizeof name, "images/imagenet_selected/%s.JPEG", images[i].name);
        const char *file = test_data(name);
        REQUIRE(file);
        REQUIRE_OK(tern_image_open(&p, file, NULL, &err), err);
        const tern_classify_params params = {.n_hits = 1, .scores = scores};
        REQUIRE_OK(tern_classify(m, &p, 1, &params, &hit, &err), err);
        CHECK_MSG(hit.label_id == best, "%s: label %d for %d", name, (int)hit.label_id, best);
        double d = distance(scores, want, 1000);
        CHECK_MSG(d < (images[i].same_pixels ? 1e-5 : 0.25), "%s: scores are %g off", name, d);
        tern_image_close(&p);
        snprintf(name, sizeof name, "%s.JPEG", images[i].name);
        if (images[i].has_input) check_real_scores(m, name, want);
    }
    tern_model_close(m);
    free(bytes);
}
