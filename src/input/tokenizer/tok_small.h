// Two tokenizers small enough to read, as tokenizer.json: for tests and fuzz targets.
#ifndef TERN_INPUT_TOKENIZER_TOK_SMALL_H
#define TERN_INPUT_TOKENIZER_TOK_SMALL_H

#include <string.h>
#include "base/strbuf.h"
#include "input/tokenizer/tok.h"

static inline void small_entry(tern_strbuf *b, const char *text, size_t n, int id) {
    if (id) tern_strbuf_putc(b, ',');
    tern_strbuf_json(b, text, n);
    tern_strbuf_printf(b, ":%d", id);
}

#define SMALL_LLAMA3                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"          \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
// 0..255 are the bytes, 256 " t", 257 "he", 258 " the", 259 two spaces, 260 "12", 261 U+00E9, and
// then the added tokens; <bos> and <end> are special.
enum { SMALL_END = 262, SMALL_THINK, SMALL_WORD, SMALL_LEFT, SMALL_RIGHT, SMALL_BOS };

static inline void small_byte_level(tern_strbuf *b, const char *expression, bool ignore_merges) {
    static const char *const merged[] = {"\xC4\xA0t",        "he", "\xC4\xA0the",
                                         "\xC4\xA0\xC4\xA0", "12", "\xC3\x83\xC2\xA9"};
    tern_strbuf_puts(b, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        tern_strbuf spelled = {0};
        tern_alphabet_spell(&spelled, (const char[]){(char)i}, 1);
        small_entry(b, tern_strbuf_text(&spelled), spelled.len, i);
        tern_strbuf_free(&spelled);
    }
    for (int i = 0; i < 6; i++) small_entry(b, merged[i], strlen(merged[i]), 256 + i);
    tern_strbuf_printf(
        b,
        "},\"merges\":[\"\xC4\xA0 t\",\"h e\",[\"\xC4\xA0t\",\"he\"],\"\xC4\xA0 \xC4\xA0\",\"1 2\","
        "\"\xC3\x83 \xC2\xA9\"],\"ignore_merges\":%s},\"added_tokens\":["
        "{\"id\":262,\"content\":\"<end>\",\"special\":true},"
        "{\"id\":263,\"content\":\"<think>\",\"special\":false},"
        "{\"id\":264,\"content\":\"word\",\"single_word\":true},"
        "{\"id\":265,\"content\":\"<l>\",\"lstrip\":true},"
        "{\"id\":266,\"content\":\"<r>\",\"rstrip\":true,\"normalized\":true},"
        "{\"id\":267,\"content\":\"<bos>\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"<bos>\"}},{\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{\"<bos>\":{\"ids\":[267]}}},"
        "\"decoder\":{\"type\":\"ByteLevel\"}}",
        ignore_merges ? "true" : "false", expression);
}

// 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, 259 the space mark, 260..285 a to z, 286 " t", 287
// "he", 288 " the", 289 "ab", 290 two spaces.
static inline void small_sentencepiece(tern_strbuf *b) {
    static const char *const merged[] = {TERN_SPACE_MARK "t", "he", TERN_SPACE_MARK "the", "ab",
                                         TERN_SPACE_MARK TERN_SPACE_MARK};
    tern_strbuf_puts(b, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,"
                        "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++) tern_strbuf_printf(b, ",\"<0x%02X>\":%d", (unsigned)i, 3 + i);
    small_entry(b, TERN_SPACE_MARK, 3, 259);
    for (int i = 0; i < 26; i++) small_entry(b, (const char[]){(char)('a' + i)}, 1, 260 + i);
    for (int i = 0; i < 5; i++) small_entry(b, merged[i], strlen(merged[i]), 286 + i);
    tern_strbuf_puts(
        b, "},\"merges\":[\"" TERN_SPACE_MARK " t\",\"h e\",\"" TERN_SPACE_MARK
           "t he\",\"a b\",\"" TERN_SPACE_MARK " " TERN_SPACE_MARK
           "\"]},\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
           "{\"id\":1,\"content\":\"<s>\",\"special\":true},"
           "{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
           "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
           "\"prepend\":\"" TERN_SPACE_MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":"
           "\" \"},\"content\":\"" TERN_SPACE_MARK "\"}]},"
           "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
           "{\"String\":\"" TERN_SPACE_MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
           "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}");
}

#endif
