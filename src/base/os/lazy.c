// See lazy.h.
#include "base/os/lazy.h"

#include "base/os/os_library.h"
#include "base/os/os_time.h"

enum { NOT_LOADED, LOADING, LOADED };

static tern_status load(tern_lazy *l, tern_error *err) {
    void *libraries[8];
    size_t n = 0;
    for (; l->libraries[n] && n < sizeof libraries / sizeof *libraries; n++) {
        tern_error why = {0};
        if (tern_library_open(&libraries[n], l->libraries[n], &why) != TERN_OK)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "this needs %s: %s", l->what, why.message);
    }
    for (size_t i = 0; i < l->n; i++) {
        l->at[i] = NULL;
        for (size_t k = 0; k < n && !l->at[i]; k++)
            l->at[i] = tern_library_symbol(libraries[k], l->names[i]);
        if (!l->at[i])
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "this needs another version of %s: there is no %s in it", l->what,
                             l->names[i]);
    }
    return TERN_OK;
}

tern_status tern_lazy_load(tern_lazy *l, tern_error *err) {
    for (int was = NOT_LOADED; !atomic_compare_exchange_strong(&l->state, &was, LOADING);
         was = NOT_LOADED) {
        if (was == LOADED) return TERN_OK;
        tern_sleep(0.001); // another thread is loading
    }
    tern_status status = load(l, err);
    atomic_store(&l->state, status == TERN_OK ? LOADED : NOT_LOADED);
    return status;
}
