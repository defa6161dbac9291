// A tensor's bytes, for tests. With TERN_TEST_UNMAPPED in the environment no test maps a file: all
// run as on a system that cannot. Whatever a test holds and does not release is a failure, and so
// are bytes of the library's heap that it leaves.
#ifndef TERN_TESTS_BLOBS_H
#define TERN_TESTS_BLOBS_H

#include "base/file/blob.h"

// Until the test ends, or until test_let_go; the file must stay open where it is mapped. NULL: they
// cannot be read.
const void *test_bytes(const tern_blob *b);
void test_let_go(void); // of all that test_bytes gave
// As the library maps files or does not; returns how it was.
bool test_map_never(bool never);
// Of what this test opens for those that follow, the memory may stay.
void test_keeps_memory(void);

#endif
