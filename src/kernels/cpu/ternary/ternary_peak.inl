// The processor's limit: products in registers, into the sums that tile() has. Included after EACH,
// DECLARE, of a##t and b##t, KEEP and USE by a file that defines
//   FACTOR, ONES          a register of factors, and one of ones
//   ADD_PRODUCT(s, w, q)  adds a register's products to a sum
//   PEAK_LOOPS, PEAK_MACS how often all sums are added to, and multiply-adds each time
static uint64_t peak_loop(void) {
    FACTOR w = ONES, q = w;
#define ADD(sum)                                                                                   \
    KEEP(q); /* or one product would do for all */                                                 \
    sum = ADD_PRODUCT(sum, w, q);                                                                  \
    KEEP(sum);
#define ADD_BOTH(t)                                                                                \
    ADD(a##t)                                                                                      \
    ADD(b##t)
    EACH(DECLARE)
    for (int i = 0; i < PEAK_LOOPS; i++) {
        EACH(ADD_BOTH)
    }
#define USE_BOTH(t)                                                                                \
    USE(a##t);                                                                                     \
    USE(b##t);
    EACH(USE_BOTH)
    return (uint64_t)PEAK_LOOPS * PEAK_MACS;
}
