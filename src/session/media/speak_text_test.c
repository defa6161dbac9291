#include "session/media/speak.h"
#include <string.h>
#include "tests/support/harness.h"

// Where the first piece ends is marked by a bar. Seen to fail: with a short word before a full stop
// as the end of a sentence; with characters counted as bytes; with the first end instead of the
// last.
TEST(speak_text_is_cut_at_the_best_place) {
    static const struct {
        size_t most;
        const char *text;
    } cases[] = {
        {40, "All of it.|"},
        {20, "It rains. It snows.| It is cold."},
        {24, "It rains, and Dr. Brown|"}, // short enough
        {22, "It rains,| and Dr. Brown is out."},
        {24, "He asked \"Why?\"| No more was said."},
        {24, "He asked \"Why?\" and no |more was said."},
        {30, "Version 1.5 is here, at last,| and it is good."},
        {12, "one two |three four"},
        {6, "abcdef|ghijkl"},
        {8, "\xe9\x9b\xa8\xe3\x80\x82\xe9\x9b\xaa\xe3\x80\x82|\xe5\xaf\x92\xe5\xaf\x92\xe5\xaf\x92"
            "\xe5\xaf\x92\xe5\xaf\x92\xe5\xaf\x92"},
        {4, "\xff\xff\xff\xff|\xff"},
        {9, "wait ... |what is it"},
        {12, "First line\n|Second line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        const char *bar = strchr(cases[i].text, '|');
        size_t want = (size_t)(bar - cases[i].text), n = strlen(cases[i].text) - 1;
        memcpy(text, cases[i].text, want);
        memcpy(text + want, bar + 1, n - want);
        size_t got = tern_speak_cut(text, n, cases[i].most);
        CHECK_MSG(got == want, "%s: cut after %zu bytes, not %zu", cases[i].text, got, want);
    }
    CHECK(tern_speak_cut("", 0, 10) == 0);
}
