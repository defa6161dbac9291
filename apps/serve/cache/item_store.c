#include "apps/serve/cache/item_store.h"

#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_thread.h"

#define ITEMS_MAX 2048

typedef struct kept_item {
    uint64_t hash; // of its id
    size_t owner, n_id, n;
    char *text; // the id, then the item
} kept_item;

struct item_store {
    tern_mutex lock;
    kept_item items[ITEMS_MAX]; // a ring: [first, first + n)
    size_t first, n, n_bytes;
};

item_store *item_store_open(void) {
    item_store *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (s) tern_mutex_init(&s->lock);
    return s;
}

static kept_item *item_at(item_store *s, size_t i) { return &s->items[(s->first + i) % ITEMS_MAX]; }

static void drop_oldest(item_store *s) {
    kept_item *k = item_at(s, 0);
    s->n_bytes -= k->n_id + k->n;
    tern_free(k->text);
    s->first = (s->first + 1) % ITEMS_MAX;
    s->n--;
}

void item_store_close(item_store *s) {
    if (!s) return;
    while (s->n) drop_oldest(s);
    tern_mutex_free(&s->lock);
    tern_free(s);
}

void item_store_put(item_store *s, size_t owner, tern_str id, tern_str item) {
    const size_t n = id.len + item.len;
    if (!s || n > ITEM_STORE_BYTES / 8) return;
    char *text = tern_alloc(TERN_MEM_SESSION, n + 1);
    if (!text) return; // it is a convenience
    memcpy(text, id.ptr, id.len);
    memcpy(text + id.len, item.ptr, item.len);
    tern_mutex_lock(&s->lock);
    while (s->n && (s->n == ITEMS_MAX || s->n_bytes + n > ITEM_STORE_BYTES)) drop_oldest(s);
    *item_at(s, s->n++) =
        (kept_item){tern_hash64(1, id.ptr, id.len), owner, id.len, item.len, text};
    s->n_bytes += n;
    tern_mutex_unlock(&s->lock);
}

bool item_store_get(item_store *s, size_t owner, tern_str id, tern_strbuf *out) {
    bool found = false;
    if (!s || !id.ptr) return false;
    const uint64_t hash = tern_hash64(1, id.ptr, id.len);
    tern_mutex_lock(&s->lock);
    for (size_t i = s->n; i-- > 0 && !found;) {
        const kept_item *k = item_at(s, i);
        found = k->hash == hash && k->owner == owner && k->n_id == id.len &&
                !memcmp(k->text, id.ptr, id.len);
        if (found) tern_strbuf_append(out, k->text + k->n_id, k->n);
    }
    tern_mutex_unlock(&s->lock);
    return found;
}
