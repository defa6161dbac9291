// usage: make_pcre2_tables ucd > few_ucd.c; make_pcre2_tables names > few_names.inc
// Writes PCRE2's tables of Unicode without what no tokenizer's expression asks for: boolean
// properties, bidirectional classes and grapheme breaks. Properties that are left out have no name
// there, so that PCRE2 refuses an expression that has one. Compiled with PCRE2's sources.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "pcre2_internal.h"

#include "pcre2_ucd.c"
#include "pcre2_ucptables.c"

enum { N_CODES = 0x110000, N_BLOCKS = N_CODES / UCD_BLOCK_SIZE };

// ---- Records and stages -------------------------------------------------------------------------

static ucd_record records[1024];
static size_t n_records;
static uint16_t blocks[N_BLOCKS][UCD_BLOCK_SIZE], stage1[N_BLOCKS];
static size_t n_blocks;

static uint16_t record_of(uint32_t c) {
    ucd_record r = *GET_UCD(c);
    size_t i = 0;
    r.gbprop = 0;
    r.scriptx_bidiclass &= UCD_SCRIPTX_MASK;
    r.bprops = 0;
    while (i < n_records && memcmp(&records[i], &r, sizeof r) != 0) i++;
    if (i == sizeof records / sizeof *records) {
        fprintf(stderr, "make_pcre2_tables: too many records\n");
        exit(1);
    }
    if (i == n_records) records[n_records++] = r;
    return (uint16_t)i;
}

static void make_stages(void) {
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        size_t i = 0;
        uint16_t *block = blocks[n_blocks];
        for (uint32_t k = 0; k < UCD_BLOCK_SIZE; k++) block[k] = record_of(b * UCD_BLOCK_SIZE + k);
        while (memcmp(blocks[i], block, sizeof *blocks) != 0) i++;
        if (i == n_blocks) n_blocks++;
        stage1[b] = (uint16_t)i;
    }
}

static void put_records(const char *name, const ucd_record *r, size_t n) {
    printf("const ucd_record PRIV(%s)[] = {\n", name);
    for (size_t i = 0; i < n; i++)
        printf("{%d,%d,%d,%d,%d,%d,%d},\n", r[i].script, r[i].chartype, r[i].gbprop, r[i].caseset,
               (int)r[i].other_case, r[i].scriptx_bidiclass, r[i].bprops);
    printf("};\n");
}

static void put_u16(const char *name, const uint16_t *v, size_t n) {
    printf("const uint16_t PRIV(%s)[] = {\n", name);
    for (size_t i = 0; i < n; i++) printf("%u,%s", (unsigned)v[i], i % 16 == 15 ? "\n" : "");
    printf("};\n");
}

static void put_u32(const char *name, const uint32_t *v, size_t n) {
    printf("const uint32_t PRIV(%s)[] = {\n", name);
    for (size_t i = 0; i < n; i++)
        printf("%lluu,%s", (unsigned long long)v[i], i % 8 == 7 ? "\n" : "");
    printf("};\n");
}

#define PUT_U32(name) put_u32(#name, PRIV(name), sizeof PRIV(name) / sizeof *PRIV(name))

static void put_ucd(void) {
    make_stages();
    printf("#include \"config.h\"\n#include \"pcre2_internal.h\"\n");
    printf("const char *PRIV(unicode_version) = \"%s\";\n", PRIV(unicode_version));
    put_records("ucd_records", records, n_records);
    PUT_U32(ucd_caseless_sets);
    PUT_U32(ucd_digit_sets);
    PUT_U32(ucd_script_sets);
    printf("const uint32_t PRIV(ucd_boolprop_sets)[] = {0};\n");
    put_u16("ucd_stage1", stage1, N_BLOCKS);
    put_u16("ucd_stage2", blocks[0], n_blocks * UCD_BLOCK_SIZE);
}

// ---- Names --------------------------------------------------------------------------------------

static int is_kept(const ucp_type_table *t) { return t->type != PT_BOOL && t->type != PT_BIDICL; }

static void put_names(void) {
    unsigned at = 0;
    printf("const char PRIV(utt_names)[] =\n");
    for (size_t i = 0; i < PRIV(utt_size); i++)
        if (is_kept(&PRIV(utt)[i]))
            printf("\"%s\\0\"\n", PRIV(utt_names) + PRIV(utt)[i].name_offset);
    printf(";\nconst ucp_type_table PRIV(utt)[] = {\n");
    for (size_t i = 0; i < PRIV(utt_size); i++) {
        const ucp_type_table *t = &PRIV(utt)[i];
        if (!is_kept(t)) continue;
        printf("{%u,%u,%u},\n", at, (unsigned)t->type, (unsigned)t->value);
        at += (unsigned)strlen(PRIV(utt_names) + t->name_offset) + 1;
    }
    printf("};\nconst size_t PRIV(utt_size) = sizeof PRIV(utt) / sizeof(ucp_type_table);\n");
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "names"))
        put_names();
    else if (argc == 2 && !strcmp(argv[1], "ucd"))
        put_ucd();
    else
        return 2;
    return fflush(stdout) == 0 ? 0 : 1;
}
