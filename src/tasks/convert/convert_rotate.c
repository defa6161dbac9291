// A float model in a rotated basis: which tensors, and by which signs.
#include "kernels/cpu/kernels.h"
#include "tasks/convert/convert_private.h"

tern_status tern_convert_begin_rotation(conversion *c, tern_error *err) {
    tern_cpu_kernels kernels;
    if (tern_arch_is_rotated(c->file))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "its weights are rotated already");
    tern_cpu_kernels_select(NULL, &kernels);
    c->hadamard = kernels.f->hadamard;
    tern_graph_init(&c->graph);
    TERN_TRY(tern_arch_build_main(&c->graph, c->arch, &c->config, err));
    TERN_TRY(tern_arch_new_rotation(&c->rotation, &c->graph, c->arch, *c->rotation_seed, err));
    if (c->rotation.n_matrices) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "no matrix of this %s has rows of whole blocks of 128 weights to rotate",
                     c->arch->name);
}
