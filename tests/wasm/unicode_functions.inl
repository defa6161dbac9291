// The table, named UNICODE_TABLE, of what has the names of utf8proc where this is included.
static int get_category(int32_t c) {
    return (int)utf8proc_category(c);
}

static int get_class(int32_t c) {
    return utf8proc_get_property(c)->combining_class;
}

static int32_t get_lower(int32_t c) {
    return utf8proc_tolower(c);
}

static int32_t get_upper(int32_t c) {
    return utf8proc_toupper(c);
}

static int32_t get_title(int32_t c) {
    return utf8proc_totitle(c);
}

static ptrdiff_t get_mapping(int32_t c, int32_t *out, ptrdiff_t room, int options) {
    int boundary = 0;
    return utf8proc_decompose_char(c, out, room, (utf8proc_option_t)options, &boundary);
}

static ptrdiff_t get_canonical(int32_t c, int32_t *out, ptrdiff_t room) {
    return get_mapping(c, out, room, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

static ptrdiff_t get_compatible(int32_t c, int32_t *out, ptrdiff_t room) {
    return get_mapping(c, out, room, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

static ptrdiff_t get_fold(int32_t c, int32_t *out, ptrdiff_t room) {
    return get_mapping(c, out, room, UTF8PROC_CASEFOLD);
}

static ptrdiff_t get_composed(int32_t *codes, ptrdiff_t n) {
    return utf8proc_normalize_utf32(codes, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

const unicode_functions UNICODE_TABLE = {
    get_category,  get_class,      get_lower, get_upper,    get_title,
    get_canonical, get_compatible, get_fold,  get_composed,
};
