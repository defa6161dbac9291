// Data generation: measures, which answers are kept, and that records do not depend on how they
// were generated.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/datagen/datagen.h"
#include "tests/support/harness.h"

static const char stories[] = "models/stories.gguf"; // tests run in the repository's root

// ---- Measures ----------------------------------------------------------------------------------

// Seen to fail with runs of three tokens.
TEST(datagen_repetition_is_the_share_of_runs_that_were_there) {
    static const struct {
        int32_t ids[12];
        size_t n;
        double wanted;
    } cases[] = {
        {{1, 2, 3, 4}, 4, 0},
        {{1, 1, 1, 1, 1, 1}, 6, 2. / 3},       // three runs, one kind
        {{1, 2, 3, 4, 1, 2, 3, 4}, 8, 1. / 5}, // 1234 comes again
        {{1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3}, 11, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = -1;
        CHECK(tern_datagen_repetition(cases[i].ids, cases[i].n, &got, NULL) == TERN_OK);
        CHECK_MSG(fabs(got - cases[i].wanted) < 1e-12, "%zu: %g", i, got);
    }
}

// ---- Runs --------------------------------------------------------------------------------------

typedef struct told {
    tern_strbuf lines; // of all candidates
    tern_datagen_reason fates[64];
    size_t n;
} told;

static bool on_record(void *user, const tern_datagen_record *r) {
    told *t = user;
    if (t->n < 64) t->fates[t->n] = r->reason;
    t->n++;
    tern_strbuf_append(&t->lines, r->line, r->n_bytes);
    tern_strbuf_putc(&t->lines, '\n');
    return true;
}

static tern_model *open_stories(void) {
    tern_model *model = NULL;
    tern_error err = {0};
    CHECK_MSG(tern_model_open(&model, stories, NULL, &err) == TERN_OK, "%s", err.message);
    return model;
}

static const char seeds[] = "\"a fox\"\n\n{\"text\": \"a lake\", \"n\": 3}\n\"a bell\"";
static const tern_sampling drawn = {.temperature = 1, .top_p = 1, .seed = 11};

static tern_datagen_desc some_records(told *t) {
    return (tern_datagen_desc){.prompt = "Write about {{ text }}.",
                               .seeds = seeds,
                               .n_seed_bytes = sizeof seeds - 1,
                               .n_records = 5,
                               .n_candidates = 2,
                               .max_tokens = 24,
                               .keep_cut = true,
                               .max_repetition = 1,
                               .sampling = &drawn,
                               .on_record = on_record,
                               .user = t};
}

static void cut_file(const char *path, size_t n) {
    size_t length;
    char *all = test_read(path, &length);
    FILE *f = fopen(path, "wb");
    REQUIRE(all && f && n < length);
    CHECK(fwrite(all, 1, n, f) == n && fclose(f) == 0);
    free(all);
}

// Seen to fail with random numbers that depend on the order of answers, and with a file that is not
// read before it is written.
TEST(datagen_records_do_not_depend_on_how_many_run_or_on_interruptions) {
    char path[512];
    size_t n, n_again;
    told first = {0}, second = {0}, third = {0};
    tern_datagen_stats stats;
    tern_error err = {0};
    tern_model *model = open_stories();
    REQUIRE(model != NULL);
    snprintf(path, sizeof path, "%s", test_tmp("records.jsonl"));
    tern_datagen_desc d = some_records(&first);
    d.path = path;
    CHECK_MSG(tern_datagen(model, &d, &stats, &err) == TERN_OK, "%s", err.message);
    CHECK(stats.n_records == 5 && stats.n_accepted == 5 && stats.n_items == 5 && first.n == 10);
    CHECK(stats.n_candidates[TERN_DATAGEN_ACCEPTED] == 5);
    CHECK(stats.n_candidates[TERN_DATAGEN_OUTDONE] == 5);
    CHECK(stats.n_tokens > 100 && stats.n_tokens <= 240);
    char *whole = test_read(path, &n);
    d = some_records(&second);
    d.n_parallel = 1;
    CHECK(tern_datagen(model, &d, NULL, NULL) == TERN_OK);
    CHECK(strcmp(tern_strbuf_text(&first.lines), tern_strbuf_text(&second.lines)) == 0);
    cut_file(path, n / 2); // as a kill would
    d = some_records(&third);
    d.path = path, d.n_parallel = 3;
    CHECK(tern_datagen(model, &d, &stats, NULL) == TERN_OK);
    char *again = test_read(path, &n_again);
    CHECK(stats.n_records == 5 && stats.n_accepted < 5 && stats.n_accepted > 1);
    CHECK(n == n_again && memcmp(whole, again, n) == 0);
    d.n_candidates = 3;
    CHECK(tern_datagen(model, &d, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "records.jsonl:1: made with other settings"), "%s", err.message);
    free(whole);
    free(again);
    tern_strbuf_free(&first.lines);
    tern_strbuf_free(&second.lines);
    tern_strbuf_free(&third.lines);
    tern_model_close(model);
}

// ---- What becomes of answers -------------------------------------------------------------------

static void check_fate(tern_model *model, const tern_datagen_desc *with, const char *answer,
                       tern_datagen_reason wanted) {
    told t = {0};
    tern_error err = {0};
    const tern_grammar_desc only = {
        .kind = TERN_GRAMMAR_CHOICES, .choices = &answer, .n_choices = 1};
    tern_datagen_desc d = *with;
    if (answer) d.grammar = &only;
    if (!d.prompt) d.prompt = "Say it.";
    if (!d.n_records) d.n_records = 1;
    d.n_items_max = d.n_records;
    d.on_record = on_record, d.user = &t;
    CHECK_MSG(tern_datagen(model, &d, NULL, &err) == TERN_OK, "%s", err.message);
    CHECK_MSG(t.n == (size_t)d.n_items_max && t.fates[t.n - 1] == wanted, "%s: %s, not %s",
              answer ? answer : "", t.n ? tern_datagen_reason_name(t.fates[t.n - 1]) : "nothing",
              tern_datagen_reason_name(wanted));
    const bool is_kept = wanted == TERN_DATAGEN_ACCEPTED;
    CHECK(is_kept == !strstr(tern_strbuf_text(&t.lines), "\"rejected\""));
    tern_strbuf_free(&t.lines);
}

// Seen to fail with each of the conditions taken out.
TEST(datagen_answers_are_kept_or_not_for_a_reason) {
    static const char *const fox[] = {"a {{ text }}"}, *const none[] = {"{{ text }}"},
                             *const runs[] = {"^[a-z ]+$"};
    static const char one[] = "\"Fox\"", empty[] = "\"\"";
    tern_model *model = open_stories();
    REQUIRE(model != NULL);
    const tern_datagen_desc
        plain = {0},
        cut = {.max_tokens = 3}, short_ = {.min_tokens = 40},
        mention = {.seeds = one, .n_seed_bytes = 5, .mentions = fox, .n_mentions = 1},
        nothing = {.seeds = empty, .n_seed_bytes = 2, .mentions = none, .n_mentions = 1},
        require = {.required = runs, .n_required = 1},
        forbid = {.forbidden = runs, .n_forbidden = 1}, twice = {.n_records = 2},
        any = {.n_records = 2, .max_similarity = -1},
        good = {.n_records = 2, .max_similarity = 1, .min_quality = 0.9f}, tight = {.n_context = 8};
    check_fate(model, &plain, "I saw a fox by the lake", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &cut, "I saw a fox by the lake", TERN_DATAGEN_CUT);
    check_fate(model, &short_, "I saw a fox by the lake", TERN_DATAGEN_SHORT);
    check_fate(model, &mention, "I saw a fox by the lake", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &mention, "I saw the fox by the lake", TERN_DATAGEN_LACKING);
    check_fate(model, &nothing, "I saw the fox by the lake", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &require, "all in small letters", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &require, "Not All", TERN_DATAGEN_LACKING);
    check_fate(model, &forbid, "all in small letters", TERN_DATAGEN_FORBIDDEN);
    check_fate(model, &forbid, "Not All", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &plain, "no no no no no no no no no no no no no no", TERN_DATAGEN_REPETITIVE);
    check_fate(model, &twice, "the same once more", TERN_DATAGEN_SIMILAR);
    check_fate(model, &any, "the same once more", TERN_DATAGEN_ACCEPTED);
    check_fate(model, &good, "the same once more", TERN_DATAGEN_LOW);
    check_fate(model, &tight, NULL, TERN_DATAGEN_NO_ROOM);
    tern_model_close(model);
}

// A record of JSON has the value; answers are compared by what they say, not by their structure.
TEST(datagen_answers_of_a_schema_are_objects) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"the name of the animal\":{\"enum\":[\"fox\","
        "\"cow\",\"hen\",\"cat\"]},\"the number of its legs\":{\"enum\":[2,3,4,5]}},\"required\":"
        "[\"the name of the animal\",\"the number of its legs\"],\"additionalProperties\":false}";
    const tern_grammar_desc grammar = {.text = schema, .compact = true};
    told t = {0};
    tern_error err = {0};
    tern_datagen_stats stats;
    tern_model *model = open_stories();
    REQUIRE(model != NULL);
    tern_datagen_desc d = some_records(&t);
    d.grammar = &grammar, d.max_tokens = 100, d.n_candidates = 4, d.n_records = 3;
    CHECK_MSG(tern_datagen(model, &d, &stats, &err) == TERN_OK, "%s", err.message);
    CHECK(stats.n_records == 3);
    CHECK_MSG(strstr(tern_strbuf_text(&t.lines), "\"object\":{\"the name of the animal\":"), "%s",
              tern_strbuf_text(&t.lines));
    CHECK(!strstr(tern_strbuf_text(&t.lines), "confidence"));
    tern_strbuf_free(&t.lines);
    tern_model_close(model);
}

// ---- Mistakes ----------------------------------------------------------------------------------

TEST(datagen_mistakes_are_named_with_their_place) {
    static const char *const broken[] = {"a{2,1}"};
    static const struct {
        const char *prompt, *seeds, *message;
    } cases[] = {
        {"{{ txt }}", "\"a\"", "seeds: line 1: the prompt's template: line 1: 'txt' is undefined"},
        {"{{ a.b }}", "\n{\"a\": 1}",
         "seeds: line 2: the prompt's template: line 1: 'int object' has no attribute 'b'"},
        {"{{ text", "\"a\"", "the prompt's template: line 1: "},
        {"{{ text }}", "\"a\"\n[1]", "seeds: line 2: expected an object or a string"},
        {"{{ text }}", "\"a\"\n{", "seeds: line 2: "},
        {"{{ text }}", "\n \n", "the seeds have no lines"},
    };
    tern_model *model = open_stories();
    REQUIRE(model != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        const tern_datagen_desc d = {.prompt = cases[i].prompt,
                                     .seeds = cases[i].seeds,
                                     .n_seed_bytes = strlen(cases[i].seeds),
                                     .max_tokens = 2,
                                     .n_records = 1};
        CHECK(tern_datagen(model, &d, NULL, &err) != TERN_OK);
        CHECK_MSG(strncmp(err.message, cases[i].message, strlen(cases[i].message)) == 0,
                  "'%s', not '%s'", err.message, cases[i].message);
    }
    tern_error err = {0};
    const tern_datagen_desc bad = {
        .prompt = "x", .n_records = 1, .required = broken, .n_required = 1};
    CHECK(tern_datagen(model, &bad, NULL, &err) != TERN_OK);
    CHECK_MSG(strstr(err.message, "a{2,1}: "), "%s", err.message);
    tern_model_close(model);
}

TEST(datagen_survives_a_lack_of_memory) {
    const tern_grammar_desc grammar = {.kind = TERN_GRAMMAR_REGEX, .text = "[a-c ]{3,9}"};
    tern_model *model = open_stories();
    REQUIRE(model != NULL);
    const size_t step = test_is_long() ? 1 : 37;
    enum { PAGE_MAX = 2 << 20 };
    size_t before = 0, n_failed = 0;
    // The first call leaves an instance and pages with the model, which later ones use or free.
    for (bool done = false; !done; n_failed += before ? step : 0) {
        told t = {0};
        tern_error err = {0};
        tern_datagen_desc d = some_records(&t);
        d.n_records = 2, d.max_tokens = 5, d.grammar = &grammar;
        if (before) tern_mem_fail_at(n_failed + 1);
        const tern_status status = tern_datagen(model, &d, NULL, &err);
        tern_mem_fail_at(0);
        tern_strbuf_free(&t.lines);
        CHECK_MSG(status == TERN_OK || status == TERN_ERR_MEMORY, "%zu: %s", n_failed, err.message);
        // A call that failed may leave a page more for the next one, which does not.
        const size_t now = tern_mem_get_stats().total_now;
        done = before && status == TERN_OK;
        CHECK_MSG(!before || now <= before + (done ? 0 : PAGE_MAX), "after %zu: %zd bytes left",
                  n_failed, (ptrdiff_t)(now - before));
        before = before ? before : now;
    }
    CHECK(n_failed > 3 * step);
    tern_model_close(model);
}
