// Unicode's properties in regular expressions: \p{Letter}, \p{Lu}, \p{gc=Nd} and their like. The
// general categories are known, and ASCII, Any and Assigned; scripts are not.
#include <string.h>
#include <utf8proc.h>
#include "base/alloc.h"
#include "grammar/rules/pattern.h"

#define N_CATEGORIES 30
#define BIT(c)       ((uint32_t)1 << (c))
#define ALL          (BIT(N_CATEGORIES) - 1)
#define BITS(a, b)   (BIT((b) + 1) - BIT(a)) // from a to b

#define PROPERTY_WORK 50000 // steps: some milliseconds

enum { // as utf8proc counts them
    CN,
    LU,
    LL,
    LT,
    LM,
    LO,
    MN,
    MC,
    ME,
    ND,
    NL,
    NO,
    PC,
    PD,
    PS,
    PE,
    PI,
    PF,
    PO,
    SM,
    SC,
    SK,
    SO,
    ZS,
    ZL,
    ZP,
    CC,
    CF,
    CS,
    CO
};

static const struct {
    const char *names[3];
    uint32_t categories;
} properties[] = {
    {{"L", "Letter"}, BITS(LU, LO)},
    {{"LC", "Cased_Letter"}, BITS(LU, LT)},
    {{"Lu", "Uppercase_Letter"}, BIT(LU)},
    {{"Ll", "Lowercase_Letter"}, BIT(LL)},
    {{"Lt", "Titlecase_Letter"}, BIT(LT)},
    {{"Lm", "Modifier_Letter"}, BIT(LM)},
    {{"Lo", "Other_Letter"}, BIT(LO)},
    {{"M", "Mark", "Combining_Mark"}, BITS(MN, ME)},
    {{"Mn", "Nonspacing_Mark"}, BIT(MN)},
    {{"Mc", "Spacing_Mark"}, BIT(MC)},
    {{"Me", "Enclosing_Mark"}, BIT(ME)},
    {{"N", "Number"}, BITS(ND, NO)},
    {{"Nd", "Decimal_Number", "digit"}, BIT(ND)},
    {{"Nl", "Letter_Number"}, BIT(NL)},
    {{"No", "Other_Number"}, BIT(NO)},
    {{"P", "Punctuation", "punct"}, BITS(PC, PO)},
    {{"Pc", "Connector_Punctuation"}, BIT(PC)},
    {{"Pd", "Dash_Punctuation"}, BIT(PD)},
    {{"Ps", "Open_Punctuation"}, BIT(PS)},
    {{"Pe", "Close_Punctuation"}, BIT(PE)},
    {{"Pi", "Initial_Punctuation"}, BIT(PI)},
    {{"Pf", "Final_Punctuation"}, BIT(PF)},
    {{"Po", "Other_Punctuation"}, BIT(PO)},
    {{"S", "Symbol"}, BITS(SM, SO)},
    {{"Sm", "Math_Symbol"}, BIT(SM)},
    {{"Sc", "Currency_Symbol"}, BIT(SC)},
    {{"Sk", "Modifier_Symbol"}, BIT(SK)},
    {{"So", "Other_Symbol"}, BIT(SO)},
    {{"Z", "Separator"}, BITS(ZS, ZP)},
    {{"Zs", "Space_Separator"}, BIT(ZS)},
    {{"Zl", "Line_Separator"}, BIT(ZL)},
    {{"Zp", "Paragraph_Separator"}, BIT(ZP)},
    {{"C", "Other"}, BITS(CC, CO) | BIT(CN)},
    {{"Cc", "Control", "cntrl"}, BIT(CC)},
    {{"Cf", "Format"}, BIT(CF)},
    {{"Cs", "Surrogate"}, BIT(CS)},
    {{"Co", "Private_Use"}, BIT(CO)},
    {{"Cn", "Unassigned"}, BIT(CN)},
};

// Goes over all code points, which takes milliseconds: it is done once for a store.
static void find_categories(tern_codes *c, uint32_t wanted) {
    uint32_t first = 0;
    bool is_in = false;
    for (uint32_t code = 0; code <= TERN_CODE_MAX + 1; code++) {
        bool is_wanted =
            code <= TERN_CODE_MAX && (wanted >> utf8proc_category((utf8proc_int32_t)code) & 1);
        if (is_wanted && !is_in) first = code;
        if (!is_wanted && is_in) tern_codes_add(c, first, code - 1);
        is_in = is_wanted;
    }
}

static void add_categories(tern_terms *t, tern_codes *c, uint32_t wanted) {
    size_t i = 0;
    while (i < t->n_properties && t->properties[i].categories != wanted) i++;
    if (i == t->n_properties) {
        tern_property found = {.categories = wanted};
        find_categories(&found.codes, wanted);
        if (found.codes.failed ||
            tern_array_reserve(TERN_MEM_SESSION, &t->properties, &t->properties_capacity, i, 1)) {
            tern_codes_free(&found.codes);
            c->failed = true;
            return;
        }
        tern_terms_work(t, PROPERTY_WORK);
        t->properties[t->n_properties++] = found;
    }
    tern_codes_add_all(c, &t->properties[i].codes);
    c->failed |= t->properties[i].codes.failed;
}

bool tern_pattern_property(tern_terms *t, tern_codes *c, const char *name, size_t n) {
    static const char *const begins[] = {"gc=", "General_Category="};
    const tern_str whole = {name, n};
    bool has_key = false;
    if (tern_str_is(whole, "Any") || tern_str_is(whole, "ASCII")) {
        tern_codes_add(c, 0, n == 3 ? TERN_CODE_MAX : 127);
        return true;
    }
    if (tern_str_is(whole, "Assigned")) {
        add_categories(t, c, ALL & ~BIT(CN));
        return true;
    }
    for (size_t i = 0; i < sizeof begins / sizeof *begins && !has_key; i++) {
        size_t length = strlen(begins[i]);
        has_key = n > length && !memcmp(name, begins[i], length);
        if (has_key) name += length, n -= length;
    }
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        for (size_t k = 0; k < 3 && properties[i].names[k]; k++)
            if (tern_str_is((tern_str){name, n}, properties[i].names[k])) {
                add_categories(t, c, properties[i].categories);
                return true;
            }
    return false;
}
